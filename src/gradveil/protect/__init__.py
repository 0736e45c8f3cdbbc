"""Encode a whole data set before training: what a client does to its pictures once, offline."""
