"""Input that nobody means well with."""
