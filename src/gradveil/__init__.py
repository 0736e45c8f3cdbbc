"""gradveil."""
