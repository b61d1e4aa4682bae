"""Input of the training: the selection of samples, their normalisation, noise, and batches read
ahead of the step.
"""
