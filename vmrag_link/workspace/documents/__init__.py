"""Read, name, check and write stored documents, for all operations."""
