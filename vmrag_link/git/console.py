"""GitPython's git, in the environment of `git.run`. Importing it takes 170 ms, so hooks and hot
paths do not use it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vmrag_link import env, proc
from vmrag_link.errors import GitFailed
from vmrag_link.paths import Places


def _find_git(folder: Path | None = None) -> str:
    return proc.find_program("git", folder) or os.devnull  # never a git that GitPython would find itself


env.add_variables({env.GITPYTHON_PROGRAM: _find_git()})  # importing GitPython starts it
import git  # noqa: E402

env.remove_variables((env.GITPYTHON_PROGRAM,))

_ENV = "/usr/bin/env"


class Console(git.Git):
    """Run git commands as methods, such as `console.rev_list("--all")`."""

    def __init__(self, places: Places) -> None:
        super().__init__(places.top)
        self._top = places.top
        self.set_persistent_git_options(git_dir=str(places.git_dir))

    def execute(self, command: Any, *args: Any, **options: Any) -> Any:
        """Run a command like GitPython, in an environment without some variables. GitPython itself
        can only add variables.
        """
        without = (word for name in sorted(env.GIT_SCRUBBED) for word in ("-u", name))
        path = f"{env.EXECUTABLES}={proc.compute_child_path(self._top)}"
        return super().execute([_ENV, *without, path, _find_git(self._top), *command[1:]], *args, **options)


@contextlib.contextmanager
def open_console(places: Places) -> Iterator[Console]:
    """Yield GitPython's git for this repository.

    Raises `GitFailed`.
    """
    try:
        yield Console(places)
    except git.GitCommandError as error:
        reason = str(error.stderr).strip()
        raise GitFailed(f"git failed: {reason}", hint="run 'git fsck' to find damaged objects", said=reason) from error
