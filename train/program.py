"""What the package is called where it names itself: `train` in a checkout and `namsa_train` in a wheel."""

PACKAGE = __name__.partition(".")[0]
PROGRAM = "python -m train" if PACKAGE == "train" else "namsa-train"  # the command that a wheel installs
