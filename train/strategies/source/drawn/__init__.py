"""Each node's own random samples of a dataset on a shared file system."""
