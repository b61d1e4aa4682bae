"""Upsampled bright-field images of defocused scans; `namsa.parallax.parallax` is the story."""
