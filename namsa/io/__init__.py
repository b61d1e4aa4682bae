"""Files of samples and files of other programs."""
