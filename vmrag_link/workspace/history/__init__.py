"""Read the history of documents and revisions, and resolve names of revisions."""
