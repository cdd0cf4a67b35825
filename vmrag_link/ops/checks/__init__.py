"""What git hooks and CI check before a commit, a push or a merge."""
