"""Encodings of pictures that keep a network's features and lose the picture: LODA's parts, and how they are cached."""
