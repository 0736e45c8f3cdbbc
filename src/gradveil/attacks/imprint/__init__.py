"""What an actively dishonest server plants: a wide linear layer in front of a model, and how its gradient is read."""
