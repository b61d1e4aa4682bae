"""Parts of a job at emulated numbers of ranks; see scripts/rehearse.py."""
