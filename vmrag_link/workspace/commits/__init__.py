"""Revisions of the knowledge base, and the git commits that pin them."""
