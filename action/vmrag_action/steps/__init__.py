"""The steps of `action.yml`, with a module for each. Its function `run(runner, job)` returns the
exit code.
"""
