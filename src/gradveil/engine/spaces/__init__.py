"""What a search may change: pixels, fewer pixels, what a network can draw, a transformation beside them."""
