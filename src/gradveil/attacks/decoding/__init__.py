"""Decoding: from the encodings of many rounds back to the pictures that were mixed in them."""
