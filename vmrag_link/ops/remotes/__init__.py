"""Remotes: which there are, and fetching from them."""
