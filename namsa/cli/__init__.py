"""The command line of namsa."""
