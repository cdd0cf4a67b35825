"""Every environment variable that the project reads or sets, and nothing else that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

SWITCH = "VMRAG"
"""`VMRAG=0` switches the hooks off."""

DEBUG = "VMRAG_DEBUG"
"""`VMRAG_DEBUG=1`: known errors show where they were raised, too."""

HOOK = "VMRAG_HOOK"
"""Set by a hook's shim, so that a copy of it that another hook manager runs as well sees that the work is being done."""

SETTING_PREFIX = "VMRAG_"
"""A setting of `.vmrag.yaml` from the environment: `VMRAG_INDEX_KEEP=8` for `index.keep`."""


MERGE_HEADS = "GITHEAD_"
"""`git merge` and `git pull` set `GITHEAD_<commit>` to the name of each head that they merge."""


def merge_heads(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The commits that `git merge` or `git pull`, whose child this process is, merges now."""
    return [name.removeprefix(MERGE_HEADS) for name in environ if name.startswith(MERGE_HEADS)]


def debug(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(DEBUG, "") not in ("", "0")


def setting_variable(key: str) -> str:
    """`index.keep` → `VMRAG_INDEX_KEEP`."""
    return SETTING_PREFIX + key.replace(".", "_").upper()


def setting(key: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The text that the environment gives for a setting; an empty variable counts as absent."""
    return environ.get(setting_variable(key)) or None


def without(names: frozenset[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A copy of the environment for a child process that must not inherit these variables."""
    return {name: value for name, value in environ.items() if name not in names}
