"""Libraries: collections of files and pages, each of which knows where it came from."""
