"""Checks of `vmrag doctor` that ask git: whether it runs each hook once, and what other gits of
this machine do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from vmrag_hooks import installer, routes, shims
from vmrag_link import hints
from vmrag_link.errors import HooksRefused
from vmrag_link.git import hook_choice, hook_config, installed_gits
from vmrag_link.git import hooks as git_hooks
from vmrag_link.ops.doctor.findings import Finding, Topic
from vmrag_link.paths import Places
from vmrag_link.workspace import Workspace


def check_hook_runs(ws: Workspace) -> Iterator[Finding]:
    """Yield findings about hooks that git runs twice, not at all, or only with some gits."""
    folder = git_hooks.find_hooks_folder(ws.places)
    install = _form_install_hint(ws.places)
    configured = hook_config.list_configured_hooks(ws.places)
    files = installer.list_own_shims(ws.places, folder)
    if configured and files:
        message = f"these hooks are in git's configuration and also in files: {', '.join(files)}."
        yield Finding("HOOKS_TWICE", "warning", message, install, " ".join(files))
    if configured or files or git_hooks.list_shims(folder):
        gits = installed_gits.find_gits(ws.places)
        yield from _check_place(ws, folder, gits, install, configured=bool(configured))
        if gits and gits[0].runs_events:
            yield from _find_silent_hooks(ws.places, folder, gits[0], configured)


def _check_place(
    ws: Workspace, folder: Path, gits: tuple[installed_gits.Git, ...], install: str, *, configured: bool
) -> Iterator[Finding]:
    """Yield a finding if some gits run no hooks from the configuration, or if hooks in files could
    be in the configuration, where no other tool can overwrite them.
    """
    older = ", ".join(str(git) for git in gits if not git.runs_hooks)
    try:
        is_configured = routes.choose_place(ws.places, folder, ws.config.hooks.place, force=False).configured
    except HooksRefused as refused:
        yield Finding(refused.code, "warning", refused.message, refused.hint, str(folder))
        return
    if configured and (older or not is_configured):
        reason = f"from which these gits run no hooks: {older}" if older else "but hooks.place is files"
        message = f"vmrag's hooks are in git's configuration, {reason}."
        yield Finding("HOOKS_MISPLACED", "note" if is_configured else "warning", message, install, older)
    elif is_configured and not configured:
        message = "git can run vmrag's hooks from its configuration, where no other tool can overwrite them."
        yield Finding("HOOKS_IN_FILES", "note", message, install, str(folder))


def _find_silent_hooks(
    places: Places, folder: Path, git: installed_gits.Git, configured: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield a finding about hooks that git does not reach.

    It only tests hooks that start no other program. A shim behind another tool's hook would start
    one.
    """
    if not git.runs_hooks:
        configured = ()
    testable = list(configured)
    for hook in git_hooks.list_shims(folder):
        path = folder / hook  # other versions of the shim do not know the dry run
        is_current = os.access(path, os.X_OK) and path.read_bytes() == shims.format_shim(hook)
        if is_current and hook not in configured:
            testable.append(hook)
    for hook in testable:
        if hook_config.runs_at_event(places, hook, configured=hook in configured):
            continue
        if key := hook_config.find_disabling_key(places, hook):
            message = f"git does not run vmrag's {hook} hook: {key} disables it."
            fix = f"run 'git config {key} true' to enable it"
        else:
            message = f"git does not run vmrag's {hook} hook."
            fix = _form_install_hint(places)
        yield Finding("HOOK_SILENT", "warning", message, fix, hook)


def _form_install_hint(places: Places) -> str:
    return hints.suggest_command(hook_choice.format_install_command(places), "install the hooks")


def _move_hooks(ws: Workspace, _: Finding) -> str:
    place = ws.config.hooks.place
    report = installer.install_hooks(ws.places, hooks=(), place=place, files_only=ws.stores_nothing)
    return f"moved the hooks to {report.folder}."


HOOK_RUNS = Topic("hooks in git", check_hook_runs, dict.fromkeys(("HOOKS_TWICE", "HOOKS_MISPLACED"), _move_hooks))
