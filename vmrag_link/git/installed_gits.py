"""The gits on this machine and their versions, because a graphical program may bundle an older git
that does not run the hooks of `hook_config`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from vmrag_link import proc
from vmrag_link.paths import Places

FIRST_VERSION = (2, 54)
"""First version of git that runs hooks from its configuration."""

_BUNDLED = (
    "Applications/Xcode*.app/Contents/Developer/usr/bin/git",
    "Library/Developer/CommandLineTools/usr/bin/git",
    "Applications/*.app/Contents/Resources/git*/bin/git",  # Sourcetree, Fork
    "Applications/*.app/Contents/Resources/app/git/bin/git",  # GitHub Desktop
    "usr/lib/*/resources/app/git/bin/git",  # on Linux
    "opt/*/resources/app/git/bin/git",
)
"""Patterns, relative to the root, of gits that graphical programs bundle."""


class Git(NamedTuple):
    """A git on this machine, such as `/usr/bin/git`, `2.39.5`."""

    path: str
    version: str

    @property
    def runs_hooks(self) -> bool:
        """True if it runs hooks from its configuration."""
        return self._release >= FIRST_VERSION

    @property
    def runs_events(self) -> bool:
        """True if it has `git hook run`."""
        return self._release >= (2, 36)

    @property
    def _release(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")[:2]))

    def __str__(self) -> str:
        return f"{self.path} ({self.version})"


def find_gits(places: Places, root: Path = Path("/")) -> tuple[Git, ...]:
    """Return the gits on PATH, beginning with the one that vmrag uses, and those that other
    programs bundle.

    Programs that do not print a version are left out.
    """
    bundled = [str(path) for pattern in _BUNDLED for path in sorted(root.glob(pattern))]
    by_file = {Path(path).resolve(): path for path in reversed([*proc.list_programs("git", places.top), *bundled])}
    return tuple(git for path in reversed(by_file.values()) if (git := read_version(path, places)))


def read_version(path: str, places: Places) -> Git | None:
    try:
        output = proc.run([path, "version"], cwd=places.top).text
    except OSError:
        return None
    version = re.match(r"git version (\d+\.\d+(\.\d+)*)", output)
    return Git(path, version[1]) if version else None
