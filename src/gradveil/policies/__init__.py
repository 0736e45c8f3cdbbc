"""Transformation policies: what a client does to its pictures before it trains on them."""

from gradveil.policies.draw import Draw
from gradveil.policies.library import LIBRARIES, Entry, Library, library_of
from gradveil.policies.policy import Policy

__all__ = ["LIBRARIES", "Draw", "Entry", "Library", "Policy", "library_of"]
