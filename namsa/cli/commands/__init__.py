"""What each `namsa` command does: progress on stderr, results on stdout."""
