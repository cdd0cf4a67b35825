"""`vmrag add`."""
