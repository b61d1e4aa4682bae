"""Reports and model cards of runs: the parts that do not depend on the task."""
