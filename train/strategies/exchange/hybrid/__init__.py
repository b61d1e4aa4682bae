"""Reduction within nodes, between leaders of the nodes, and within nodes again."""
