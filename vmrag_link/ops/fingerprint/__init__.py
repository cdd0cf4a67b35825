"""`vmrag fingerprint`."""
