"""Results of `check` and `verify` for test reporters of CI."""
