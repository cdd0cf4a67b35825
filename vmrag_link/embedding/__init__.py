"""Embedding models and the cache of their vectors."""
