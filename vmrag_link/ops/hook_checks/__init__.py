"""The checks of the hooks `pre-commit` and `pre-push`."""
