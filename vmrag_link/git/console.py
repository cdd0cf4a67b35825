"""GitPython's git, in the environment of `git.run`. Importing this takes 170 ms."""

from __future__ import annotations

from typing import Any

import git

from vmrag_link import env
from vmrag_link.paths import Places

CommandError = git.GitCommandError

_ENV = "/usr/bin/env"


class Console(git.Git):
    """Runs git's commands as methods: `console.rev_list("--all")`."""

    def __init__(self, places: Places) -> None:
        super().__init__(places.top)
        self.set_persistent_git_options(git_dir=str(places.git_dir))

    def execute(self, command: Any, *args: Any, **options: Any) -> Any:
        """As GitPython's, which can add variables to the environment, but leave none out."""
        without = (word for name in sorted(env.GIT_SCRUBBED) for word in ("-u", name))
        return super().execute([_ENV, *without, *command], *args, **options)
