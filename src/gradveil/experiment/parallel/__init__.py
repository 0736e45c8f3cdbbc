"""Many independent tasks: here, in processes of this machine, or on a Ray cluster."""
