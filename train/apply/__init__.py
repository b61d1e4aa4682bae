"""Reconstruction of 4D-STEM data with a trained network."""
