"""Local SGD: ranks update by their own gradients, and average their weights after some steps."""
