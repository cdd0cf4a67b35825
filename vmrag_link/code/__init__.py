"""Source code: its language, and how it is cut by symbols."""
