"""The commands that read a dataset, as tests run them on one that others have changed."""

COMMANDS = {
    "verify": ["verify", "d"],
    "info": ["info", "d"],
    "repair": ["repair", "d"],
    "show": ["show", "d"],
    "export": ["export", "d", "--out", "o.h5"],
    "merge": ["merge", "d", "--out", "m"],
}
