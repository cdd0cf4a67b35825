"""`vmrag report`."""
