"""Trained networks on 4D-STEM data: what the networks of every task need."""
