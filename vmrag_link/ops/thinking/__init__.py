"""Thoughts of agents, step by step in sessions: written down, found again."""
