"""A simulation before any work: its description, checks of its arguments, its probe positions."""
