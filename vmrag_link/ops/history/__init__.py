"""What the knowledge base was: log, diff, the names of revisions, the base of a merge."""
