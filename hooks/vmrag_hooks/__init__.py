"""The shims that git runs, and their installer."""
