"""Bring knowledge base and index to the revision of the pin, and tell what an answer is from."""
