"""`vmrag branch`."""
