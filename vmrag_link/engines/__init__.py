"""Engines, which store the knowledge base."""
