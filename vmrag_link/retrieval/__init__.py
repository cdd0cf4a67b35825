"""Reproducible retrieval: equal fingerprints and equal queries give equal answers everywhere."""
