"""Which remotes there are, and what comes from them."""
