"""The pin as a file in git: writing and staging it, its rules, and those of the whole history."""
