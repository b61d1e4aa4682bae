"""The `namsa` commands: progress on stderr, results on stdout."""
