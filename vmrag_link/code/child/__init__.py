"""The process that parses strangers' code."""
