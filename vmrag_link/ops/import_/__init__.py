"""`vmrag import`."""
