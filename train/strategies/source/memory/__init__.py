"""Training samples in the memory of the ranks."""
