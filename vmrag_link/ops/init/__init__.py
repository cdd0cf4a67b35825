"""`vmrag init`."""
