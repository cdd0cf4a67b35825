"""Merging knowledge, and deciding about conflicts."""
