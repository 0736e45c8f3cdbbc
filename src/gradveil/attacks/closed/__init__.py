"""What closed forms share: how a layer's input leads back to the picture, and the replay that decides."""
