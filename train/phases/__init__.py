"""The phases of the job, one module each, in the order in which `train.main` calls them."""
