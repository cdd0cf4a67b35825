"""Tests of the toolsets, each in its own folder: `tests/check.py --core` leaves them out."""
