"""`vmrag restore`."""
