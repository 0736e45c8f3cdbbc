"""The search for transformation policies (ATS, Gao et al., 2021, algorithm 1)."""
