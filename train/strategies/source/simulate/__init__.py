"""Samples from a simulator that runs beside the training."""
