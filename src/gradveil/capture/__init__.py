"""Captured rounds: what a server really saw, as a file that any framework can write. See docs/captures.md."""

from gradveil.capture.format import Capture
from gradveil.capture.read import load
from gradveil.capture.simulated import simulate
from gradveil.capture.write import content_hash, save

__all__ = ["Capture", "content_hash", "load", "save", "simulate"]
