"""`vmrag verify`."""
