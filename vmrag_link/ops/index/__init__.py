"""Asking the vector index, and looking after it."""
