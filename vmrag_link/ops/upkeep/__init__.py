"""Keeping it in order: garbage, doctor, bug logs, serving."""
