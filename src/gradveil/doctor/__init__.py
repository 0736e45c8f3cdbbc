"""What can be said of a model, its data, its training and a captured round before any attack: one file a kind of look.

A new look is a file and a row of `LOOKS` in `diagnose.py`.
"""
