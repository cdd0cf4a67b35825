"""What cloned content may do on this machine: only what its person agreed to."""
