"""Captured rounds: what a server really saw, as a file that any framework can write. See docs/captures.md."""

from gradveil.capture.format import Capture
from gradveil.capture.read import content_hash, load, save
from gradveil.capture.scenario import simulate

__all__ = ["Capture", "content_hash", "load", "save", "simulate"]
