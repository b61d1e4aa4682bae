"""Figures of samples: signals, panels, and what a notebook shows."""
