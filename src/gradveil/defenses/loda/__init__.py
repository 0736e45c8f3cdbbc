"""Learning to Obscure Data (Wan et al., 2022): encodings that keep a network's features and lose the picture."""
