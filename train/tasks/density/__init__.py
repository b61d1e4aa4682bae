"""The task density: the projected electron density of a specimen, or that of each bin along the
beam, from a scan.
"""

# Where `train.tasks.registry` finds the parts of this task that are not beside this module.
MODULES = {
    "application": "scan.application",
    "calibrate": "trust.calibration",
    "card": "report.card",
    "live": "scan.live",
    "report": "report.report",
}
