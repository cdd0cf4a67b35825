"""`vmrag merge`."""
