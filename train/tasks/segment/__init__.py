"""The task segment: the class of every scan position: matrix, grain, or another phase."""
