"""Golden queries: what a repository's `.vmrag/queries.yaml` asks and expects."""
