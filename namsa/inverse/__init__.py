"""From densities back to patterns: Mott-Bethe potentials and the consistency of a density with its
patterns.
"""
