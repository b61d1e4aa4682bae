"""Calibration of a 4D-STEM scan measured from its own patterns; `namsa.inspection.inspect` is the
story.
"""
