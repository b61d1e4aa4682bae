"""From records to batches of network input."""
