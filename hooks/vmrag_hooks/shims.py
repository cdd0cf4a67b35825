"""The text of a *shim*, vmrag's script for a hook, and the command line of the merge driver.

The shims are in POSIX sh, and start Python only if there is something to do. In the common case, a
shim is one sh process that runs only builtins. It must do so in dash, busybox and bash.
"""

from __future__ import annotations

import re
import shlex

from vmrag_hooks import shim_parts as parts
from vmrag_link import env
from vmrag_link.git.hook_config import DRY_RUN_MARK, SYNCING

VERSION = 11

YIELDING_VERSION = 9
"""From this version on, a shim does nothing if git has run the hook from its configuration."""

REFUSAL_EXIT_CODE = 10
"""The exit code of `python -m vmrag_hooks` that stops git. No interpreter fails with it."""

UNCHECKED_PUSH = (
    "nothing was pushed: could not check the new pins of these commits, whose revisions may be missing on the remote; "
    "run 'git push --no-verify' to push the commits without these revisions"
)
"""Why a push stops if it could not be checked."""

# The work that a failed hook has not done, by its name.
_SKIPPED_WORK = {
    "pre-push": "the pins of these commits were not checked",
    "pre-commit": "the pin was not checked",
    "pre-merge-commit": "the pin was not checked",
}

_STOP_PUSH = f"""\
        if new_pin; then
            echo "vmrag: {UNCHECKED_PUSH}" >&2
            exit 1
        fi
"""

_SYNC_PARTS = (parts.SYNC, parts.RUN, parts.START, parts.END)
_FOLDER_PARTS = (parts.FOLDERS, parts.HEAD_COMMIT)
_PARTS = {
    "post-checkout": (parts.NO_STDIN, *_FOLDER_PARTS, *_SYNC_PARTS),
    "post-merge": (parts.NO_STDIN, *_FOLDER_PARTS, parts.QUEUE_COMMIT, *_SYNC_PARTS),
    "post-rewrite": (parts.STDIN, *_FOLDER_PARTS, parts.QUEUE_REWRITTEN, *_SYNC_PARTS),
    "post-commit": (parts.NO_STDIN, *_FOLDER_PARTS, parts.QUEUE_COMMIT, *_SYNC_PARTS),
    "post-applypatch": (parts.NO_STDIN, *_FOLDER_PARTS, parts.QUEUE_COMMIT, *_SYNC_PARTS),
    "pre-commit": (parts.NO_STDIN, parts.FOLDERS, parts.COMMIT_GATE, parts.RUN, parts.START, parts.END),
    "pre-merge-commit": (parts.NO_STDIN, parts.FOLDERS, parts.RUN, parts.START, parts.END),
    "pre-push": (parts.STDIN, parts.FOLDERS, parts.PUSH_GATE, parts.RUN, parts.START_WITH_STDIN, parts.END),
}


def format_shim(hook: str, *, configured: bool = False) -> bytes:
    """Return the shim of a hook in `HOOKS`.

    `configured` is for a shell that git's configuration starts, with no chained hook.
    """
    template = "".join((parts.CONFIGURED if configured else parts.CHAINED, *_PARTS[hook]))
    template = template.replace("@DRY@", parts.DRY).replace("@ONCE@", "" if configured else parts.ONCE)
    values = {
        "SAYS": DRY_RUN_MARK,
        "VERSION": str(VERSION),
        "HOOK": hook,
        "DRYRUN": env.DRY_RUN,
        "REFUSED": "" if hook in SYNCING else "[ $status = 0 ] || exit $status  # the chained hook refuses already\n",
        "REFUSES": str(REFUSAL_EXIT_CODE),
        "STOPPED": _STOP_PUSH if hook == "pre-push" else "",
        "UNDONE": _SKIPPED_WORK.get(hook, "the knowledge base was not updated"),
        "VARIABLES": " ".join(env.GIT_LOCAL),
    }
    return re.sub("@([A-Z]+)@", lambda match: values[match[1]], template).encode()


def format_driver_command(python: str) -> str:
    """Return the command line of the merge driver.

    Each failure, also a missing interpreter, exits with 1, an ordinary conflict. Other exit codes
    would abort git's merge.
    """
    return f"{shlex.quote(python).replace('%', '%%')} -P -E -m vmrag_hooks.merge_driver %O %A %B %L %P || exit 1"
