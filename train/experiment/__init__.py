"""Configuration of an experiment, and what it determines: conditions, input channels and symmetries
of its samples.
"""
