"""Find passages in an index, and where they are in files."""
