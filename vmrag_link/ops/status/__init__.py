"""`vmrag status`."""
