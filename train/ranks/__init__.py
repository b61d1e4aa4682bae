"""Ranks of a job: protocol, Horovod, groups of gradients, hybrid reduction, devices, signals, watchdog, supervisor."""
