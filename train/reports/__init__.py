"""Evaluation, figures and reports of runs."""
