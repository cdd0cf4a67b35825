"""Chroma's store of an index: what Chroma's own clients open."""
