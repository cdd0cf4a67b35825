"""`vmrag demo`: Python's documentation as a knowledge base, and two branches with different
knowledge.
"""
