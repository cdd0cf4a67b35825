"""The pin as a file of git's: writing and staging it, what a commit's must be, those of the whole history."""
