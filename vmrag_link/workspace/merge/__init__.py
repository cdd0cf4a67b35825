"""The state of a merge, its sides and its conflicts."""
