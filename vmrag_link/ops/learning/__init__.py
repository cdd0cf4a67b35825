"""Chats, what was learnt in them, and the evidence for that."""
