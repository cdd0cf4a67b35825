"""`vmrag query`."""
