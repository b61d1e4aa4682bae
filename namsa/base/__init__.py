"""Utilities of every other package: errors, text, arrays, files, locks and names."""
