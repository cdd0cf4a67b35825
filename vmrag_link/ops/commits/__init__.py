"""Commits of the knowledge base: ancestry, distance, listings, differences."""
