"""The state of the work tree and its knowledge base."""
