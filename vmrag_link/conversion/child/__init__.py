"""The child process that converts untrusted files."""
