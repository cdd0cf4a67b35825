"""The page about libraries."""
