"""Measurements of speed. Every figure is a ratio within one run on one machine."""
