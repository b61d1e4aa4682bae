"""Rivals of the network in reconstruct_vs_rivals.py: stacks, methods, search for settings, report."""
