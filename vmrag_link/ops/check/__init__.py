"""`vmrag check`."""
