"""Ranks of a job: their interface and its implementations, the exchange of gradients, signals,
watchdog, supervisor.
"""
