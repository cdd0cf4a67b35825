"""`vmrag migrate`."""
