"""The yardstick of what a person waits for: Python has started and can read a command line."""

import click

print(click.__name__)
