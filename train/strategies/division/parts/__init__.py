"""Each sample divided over a group of ranks, along an axis of the image."""
