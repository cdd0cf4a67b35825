"""What git is told to run: the text of the hooks, and the command line of our merge driver.

The hooks are POSIX sh and start Python only when there is something to do. In the common case a
shim is one sh process that runs builtins only. It must do so in dash, busybox and bash.
"""

from __future__ import annotations

import re
import shlex

from vmrag_hooks import shim_parts as parts
from vmrag_link import env
from vmrag_link.git.hook_config import DRY_RUN_MARK, SYNCING

VERSION = 11

STANDS_BACK = 9
"""From this version on a shim does nothing where git has run the hook from its configuration."""

REFUSES = 10
"""The exit code of `python -m vmrag_hooks` that stops git; one with which no interpreter fails."""

UNSEEN = (
    "nothing was pushed: these commits pin knowledge that nobody else may have, and it could not be looked at "
    "(to push them all the same, without the knowledge that others then miss: git push --no-verify)"
)
"""Why a push stops that could not be checked."""

_UNDONE = {
    "pre-push": "the knowledge of these commits was not looked at",
    "pre-commit": "the pin was not looked at",
    "pre-merge-commit": "the pin was not looked at",
}

_STOPPED = f"""\
        if new_pin; then
            echo "vmrag: {UNSEEN}" >&2
            exit 1
        fi
"""

_SYNCED = (parts.SYNC, parts.RUN, parts.START, parts.END)
_PLACED = (parts.PLACES, parts.HEAD_COMMIT)
_PARTS = {
    "post-checkout": (parts.NO_STDIN, *_PLACED, *_SYNCED),
    "post-merge": (parts.NO_STDIN, *_PLACED, parts.QUEUE_COMMIT, *_SYNCED),
    "post-rewrite": (parts.STDIN, *_PLACED, parts.QUEUE_REWRITTEN, *_SYNCED),
    "post-commit": (parts.NO_STDIN, *_PLACED, parts.QUEUE_COMMIT, *_SYNCED),
    "post-applypatch": (parts.NO_STDIN, *_PLACED, parts.QUEUE_COMMIT, *_SYNCED),
    "pre-commit": (parts.NO_STDIN, parts.PLACES, parts.COMMIT_GATE, parts.RUN, parts.START, parts.END),
    "pre-merge-commit": (parts.NO_STDIN, parts.PLACES, parts.RUN, parts.START, parts.END),
    "pre-push": (parts.STDIN, parts.PLACES, parts.PUSH_GATE, parts.RUN, parts.START_WITH_STDIN, parts.END),
}


def format_shim(hook: str, *, configured: bool = False) -> bytes:
    """The shim for one of `HOOKS`; `configured`: for a shell that git's configuration has started,
    where no other hook is chained.
    """
    filled = "".join((parts.CONFIGURED if configured else parts.CHAINED, *_PARTS[hook]))
    filled = filled.replace("@DRY@", parts.DRY).replace("@ONCE@", "" if configured else parts.ONCE)
    values = {
        "SAYS": DRY_RUN_MARK,
        "VERSION": str(VERSION),
        "HOOK": hook,
        "DRYRUN": env.DRY_RUN,
        "REFUSED": "" if hook in SYNCING else "[ $status = 0 ] || exit $status  # the chained hook refuses already\n",
        "REFUSES": str(REFUSES),
        "STOPPED": _STOPPED if hook == "pre-push" else "",
        "UNDONE": _UNDONE.get(hook, "the knowledge base was not moved"),
        "VARIABLES": " ".join(env.GIT_LOCAL),
    }
    return re.sub("@([A-Z]+)@", lambda found: values[found[1]], filled).encode()


def format_driver_command(python: str) -> str:
    """The command line. Every failure, a missing interpreter included, ends with 1, a plain
    conflict: git's merge dies from other exit codes.
    """
    return f"{shlex.quote(python).replace('%', '%%')} -P -E -m vmrag_hooks.merge_driver %O %A %B %L %P || exit 1"
