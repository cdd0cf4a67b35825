"""One module a step of `action.yml`, each with `run(runner, job) -> int`, the exit code."""
