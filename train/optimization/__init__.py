"""Training step and loop, losses, optimizers, schedules, loss scaling, gradient lag and checkpoints."""
