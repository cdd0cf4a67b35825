"""Which code commit belongs to which revision of the knowledge base."""
