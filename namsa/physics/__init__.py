"""Physics as pure functions on arrays: optics, potentials, detectors, targets."""
