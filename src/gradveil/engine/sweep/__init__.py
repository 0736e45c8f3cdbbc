"""The fast back end: first and second derivatives written out layer by layer, for all trials at once."""
