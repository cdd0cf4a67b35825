"""Reproducible retrieval: equal fingerprints and equal queries give equal answers on every
machine.
"""
