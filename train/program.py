"""The package's name in messages: `train` in a checkout and `namsa_train` in a wheel."""

PACKAGE = __name__.partition(".")[0]
# the command that a wheel installs
PROGRAM = "python -m train" if PACKAGE == "train" else "namsa-train"
