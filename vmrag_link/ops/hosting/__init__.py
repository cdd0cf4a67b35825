"""What CI does to a branch on the host of the code."""
