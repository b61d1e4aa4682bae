"""Gradient lag: a step updates with the gradients of the step before."""
