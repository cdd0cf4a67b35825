"""`vmrag sources`."""
