"""The reliability of a reconstructed density: out-of-distribution score (familiarity), consistency
of patterns and density (trust), aberrations, orientation, and the calibration of the uncertainty.
"""
