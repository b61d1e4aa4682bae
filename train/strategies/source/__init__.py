"""Sources of samples; see `train.input.source`."""
