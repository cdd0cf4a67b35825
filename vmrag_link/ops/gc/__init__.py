"""`vmrag gc`."""
