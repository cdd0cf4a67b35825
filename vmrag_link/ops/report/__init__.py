"""What a pull request does to the knowledge."""
