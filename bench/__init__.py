"""Benchmarks: ratios taken in one run. `python -m bench --help`; the figures are in README.md."""
