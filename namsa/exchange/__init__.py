"""Into others' hands: stacks and densities in the form that other programs start from."""
