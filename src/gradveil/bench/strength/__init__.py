"""`gradveil bench strength`: every attack, and peers', on the same updates at equal processor time."""
