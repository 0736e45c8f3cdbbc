"""The optimization attack and its parts: distance x space x priors x optimizer."""
