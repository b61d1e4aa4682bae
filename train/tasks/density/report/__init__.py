"""The report and the model card of the task density."""
