"""Strategies: what may stand in for a default of the job. `train.experiment.registry` imports those
that are chosen.
"""
