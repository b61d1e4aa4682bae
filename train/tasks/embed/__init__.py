"""The task embed: a few latent numbers of a pattern, and the pattern that is made from them."""
