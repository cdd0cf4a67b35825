"""Chroma's store of an index, which Chroma's own clients can open."""

DATABASE_FILE = "chroma.sqlite3"
"""The name of the database in every store. A checkout looks for stores, and loads no other module
of this package.
"""
