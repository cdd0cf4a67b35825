"""Update and repair branches of pull requests, for the Action."""
