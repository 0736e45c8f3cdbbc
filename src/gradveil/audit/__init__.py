"""An audit: every attack on every defense, the controls beside them, and the verdict on what came out."""
