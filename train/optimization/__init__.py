"""Training step and loop, losses, optimizers, schedules, loss scaling and checkpoints."""
