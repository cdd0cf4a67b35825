"""The vector index: derived from the knowledge base, thrown away and built again at any time."""
