"""What everybody needs and what needs nobody: the nouns of a round, seeds, errors, and small tools."""
