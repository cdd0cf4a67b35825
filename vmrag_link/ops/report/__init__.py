"""Reports on the effect of a pull request on the knowledge base."""
