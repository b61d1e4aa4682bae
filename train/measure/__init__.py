"""Metrics of densities, performance of steps, and what a job writes while it runs."""
