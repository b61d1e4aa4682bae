"""What may stand in for an average of gradients in every step, a folder each."""
