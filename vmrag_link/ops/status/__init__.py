"""Where the work tree and its knowledge base stand."""
