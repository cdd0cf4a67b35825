"""Source code: find its language, and split it by symbols."""
