"""KB branches: committing on them, switching, resetting, merging and pulling into them."""
