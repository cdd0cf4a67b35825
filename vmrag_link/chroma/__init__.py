"""Chroma's store of an index: what Chroma's own clients open."""

DATABASE_FILE = "chroma.sqlite3"
"""Its name in every store. A checkout looks for stores and loads nothing else of Chroma."""
