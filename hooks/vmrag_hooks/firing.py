"""What `vmrag doctor` asks git itself: whether it runs each hook, and once, and what the other gits
of this machine do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from vmrag_hooks import installer, shims, ways
from vmrag_link.errors import HooksRefused
from vmrag_link.git import hook_config
from vmrag_link.git import hooks as found
from vmrag_link.ops.doctor.findings import Finding, Topic
from vmrag_link.paths import Places
from vmrag_link.workspace import Workspace


def check_firing(ws: Workspace) -> Iterator[Finding]:
    """Only where hooks are installed."""
    folder, install = found.find_hooks_folder(ws.places), hook_config.format_install_command(ws.places)
    configured = hook_config.list_configured_hooks(ws.places)
    files = installer.list_own_shims(ws.places, folder)
    if configured and files:
        message = f"These hooks are in git's configuration, and in files as well: {', '.join(files)}."
        yield Finding("HOOKS_TWICE", "warning", message, install, " ".join(files))
    if configured or files or found.list_shims(folder):
        gits = hook_config.find_gits(ws.places)
        yield from _place(ws, folder, gits, install, configured=bool(configured))
        if gits and gits[0].runs_events:
            yield from _silent(ws.places, folder, gits[0], configured)


def _place(
    ws: Workspace, folder: Path, gits: tuple[hook_config.Git, ...], install: str, *, configured: bool
) -> Iterator[Finding]:
    """Whether the hooks are where all gits run them, or could be where no other tool is in their
    way.
    """
    older = ", ".join(str(git) for git in gits if not git.runs_hooks)
    try:
        wanted = ways.choose_place(ws.places, folder, ws.config.hooks.place, force=False).configured
    except HooksRefused as refused:
        yield Finding(refused.code, "warning", refused.message, refused.hint, str(folder))
        return
    if configured and (older or not wanted):
        why = f"from which these run none: {older}" if older else "and hooks.place says files"
        message = f"vmrag's hooks are in git's configuration, {why}."
        yield Finding("HOOKS_MISPLACED", "note" if wanted else "warning", message, install, older)
    elif wanted and not configured:
        message = "git would run vmrag's hooks from its configuration, where no other tool is in their way."
        yield Finding("HOOKS_IN_FILES", "note", message, install, str(folder))


def _silent(places: Places, folder: Path, git: hook_config.Git, configured: tuple[str, ...]) -> Iterator[Finding]:
    """Hooks to which git does not get, of those that can be asked without running anybody else's: a
    shim behind another tool's hook cannot.
    """
    if not git.runs_hooks:
        configured = ()
    asked = [
        *configured,
        *(hook for hook in found.list_shims(folder) if hook not in configured and _is_first(folder, hook)),
    ]
    for hook in asked:
        if hook_config.runs_at_event(places, hook, configured=hook in configured):
            continue
        if key := hook_config.find_disabling_key(places, hook):
            message, fix = f"git does not run vmrag's {hook} hook: {key} switches it off.", f"git config {key} true"
        else:
            message, fix = f"git does not run vmrag's {hook} hook.", hook_config.format_install_command(places)
        yield Finding("HOOK_SILENT", "warning", message, fix, hook)


def _is_first(folder: Path, hook: str) -> bool:
    """Whether git's hook is a shim of ours, as this version writes it: others know no dry event."""
    path = folder / hook
    return os.access(path, os.X_OK) and path.read_bytes() == shims.format_shim(hook)


def _move(ws: Workspace, _: Finding) -> str:
    place = ws.config.hooks.place
    report = installer.install_hooks(ws.places, hooks=(), place=place, files_only=ws.stores_nothing)
    return f"The hooks are in {report.folder} alone."


FIRING = Topic("hooks as git runs them", check_firing, dict.fromkeys(("HOOKS_TWICE", "HOOKS_MISPLACED"), _move))
