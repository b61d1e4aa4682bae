"""Configuration of an experiment, and what follows from it: conditions, input channels, symmetries."""
