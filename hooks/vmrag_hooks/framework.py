"""`python -P -E -m vmrag_hooks.framework check|push|sync`: the hooks of `.pre-commit-hooks.yaml`
for pre-commit and prek.

The framework runs them in its own environment without an index and a model. That is enough to check
pins, but not to switch the knowledge base. If `vmrag install` installed a shim (`shims`) for the
same hook, git runs both, and the shim does the work. The shim sees what the framework stashes, and
every ref of a push.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vmrag_hooks import installer, shims
from vmrag_hooks.boundary import run_guarded
from vmrag_link import env, proc
from vmrag_link.file_access import read_recorded_path
from vmrag_link.git import plumbing


def check_staged_pin() -> bool:
    """Return whether the staged pin stops the commit. If a shim runs, it decides instead."""
    index = env.read_variable(env.COMMIT_INDEX)
    places = plumbing.locate_work_tree(Path.cwd())
    hook = "pre-merge-commit" if env.list_merge_heads() else "pre-commit"
    if index and installer.runs_here(places, hook):
        return False
    from vmrag_hooks import checks

    return checks.check_commit(checks.find_index_file(index or ""))


def check_pushed_ref() -> bool:
    """Return whether a pin stops the push. If a shim runs, it decides instead.

    The framework passes only the first of several refs.
    """
    variables = env.read_framework_variables()
    remote, local = variables.get("REMOTE_NAME") or None, variables.get("LOCAL_BRANCH", "")
    places = plumbing.locate_work_tree(Path.cwd())
    if remote and installer.runs_here(places, "pre-push"):  # no remote: a user runs the hook by hand
        return False
    from vmrag_hooks import checks
    from vmrag_link.ops.hook_checks.push_check import Push, PushedRef

    tip = plumbing.resolve_commit(places, variables.get("TO_REF") or local or "HEAD")
    ref = PushedRef(local, tip, variables.get("REMOTE_BRANCH", ""), variables.get("FROM_REF") or None)
    return checks.check_push(Push((ref,), remote, variables.get("REMOTE_URL", "")))


def run_shim() -> bool:
    """Run vmrag's shim like git's hook would. It never stops git."""
    event = _read_event()
    places = plumbing.locate_work_tree(Path.cwd())
    if event and installer.runs_here(places, event[0]):
        return False
    # Without a recorded interpreter, the shim would use the framework's Python, which is on PATH.
    python = read_recorded_path(places.interpreter)
    if python is not None and os.access(python, os.X_OK):
        hook, *arguments = event or ("post-checkout",)
        proc.run(["sh", "-c", shims.format_shim(hook).decode(), hook, *arguments], cwd=places.top, show_stderr=True)
    return False


def _read_event() -> tuple[str, ...]:
    """Return the post-* hook that git runs, with git's arguments; an empty tuple if a user runs the
    framework.
    """
    match env.read_framework_variables():
        case {"FROM_REF": old, "TO_REF": new, "CHECKOUT_TYPE": flag}:
            return "post-checkout", old, new, flag
        case {"IS_SQUASH_MERGE": squash}:
            return "post-merge", squash
        case {"REWRITE_COMMAND": command}:
            return "post-rewrite", command
    return ("post-merge", "0") if env.read_prek_stage() == "post-merge" else ()


HOOKS: Mapping[str, Callable[[], bool]] = {"check": check_staged_pin, "push": check_pushed_ref, "sync": run_shim}


def main(argv: Sequence[str]) -> int:
    """Run a hook, and return its exit code.

    A check that fails to run never stops git.
    """
    results: list[bool] = []
    if not env.are_hooks_off():
        run_guarded(lambda: results.append(HOOKS[argv[0]]()))
    return int(any(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
