"""What the commands of `python -m train` do. None of these modules imports TensorFlow before it is needed."""
