"""When tests take something for a hang."""

HANGS_S = 1200.0  # far more than anything takes, also on a machine that is ten times slower than usual
