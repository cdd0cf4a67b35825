"""Letting others have the knowledge, and taking in what others offer."""
