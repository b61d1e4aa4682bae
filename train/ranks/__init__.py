"""Ranks: reduction with Horovod, grouping, devices, signals, watchdog and supervisor."""
