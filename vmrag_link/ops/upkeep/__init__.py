"""Upkeep: garbage collection, doctor, bug logs."""
