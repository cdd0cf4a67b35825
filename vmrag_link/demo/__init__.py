"""`vmrag demo`: Python's documentation as a knowledge base, with two branches that have different
documents.
"""
