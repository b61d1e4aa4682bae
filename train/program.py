"""The package's name in messages: `train` in a checkout and `namsa_train` in a wheel."""

PACKAGE = __name__.partition(".")[0]
# the command, which a wheel and a checkout's environment install alike
PROGRAM = "namsa-train"
