"""`vmrag commit`."""
