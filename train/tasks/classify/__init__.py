"""The task classify: the class of a pattern, and by vote that of a scan."""
