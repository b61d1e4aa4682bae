"""Parts of training samples from an HDF5 file."""
