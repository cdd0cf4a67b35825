"""`vmrag link` and `vmrag links`."""
