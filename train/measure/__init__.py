"""Measurements: metrics of densities, performance of steps, types of results, and the output of a
running job.
"""
