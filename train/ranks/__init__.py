"""Ranks of a job: their protocol, Horovod, groups of gradients, devices, signals, watchdog and supervisor."""
