"""Profiles of training steps: time by kind of operation, and a timeline."""
