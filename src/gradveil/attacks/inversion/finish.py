"""What is done to the pictures at the very end."""

from __future__ import annotations

from gradveil.types import Images


def clamp(images: Images) -> Images:
    """Into the box of pictures, [0, 1]."""
    return images.clamp(0, 1)


def keep(images: Images) -> Images:
    """As the optimizer left them."""
    return images
