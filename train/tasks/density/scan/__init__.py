"""A density from a scan: windows, their predictions, and what may follow the density."""
