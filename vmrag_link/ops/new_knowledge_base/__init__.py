"""`vmrag new-knowledge-base`."""
