"""Parts of a job at pretended numbers of ranks; see scripts/rehearse.py."""
