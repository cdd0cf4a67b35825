"""`vmrag resolve`."""
