"""`vmrag demo`: a story of commands (`story.toml`), played on Python's documentation."""
