"""What stores the knowledge base."""
