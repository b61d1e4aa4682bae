"""Pictures and summaries of samples and datasets."""
