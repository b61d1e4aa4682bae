"""Losses, optimizers, schedules, loss scaling, the training loop and checkpoints."""
