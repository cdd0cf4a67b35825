"""The git hooks of vmrag, and their installer."""
