"""Sharded masters: each rank keeps and updates the float32 weights and moments of its own
variables.
"""
