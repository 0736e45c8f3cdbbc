"""TODO: what is in this room."""
