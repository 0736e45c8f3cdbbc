"""Transformation policies: what a client does to its pictures before it trains on them."""

from gradveil.transforms.library import LIBRARIES, Entry, Library, library_of
from gradveil.transforms.policy import Draw, Policy

__all__ = ["LIBRARIES", "Draw", "Entry", "Library", "Policy", "library_of"]
