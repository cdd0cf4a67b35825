"""Three-way merges of what the knowledge base holds, with a base of the caller's choice. Knows engines by their contract only."""
