"""Decide how git reaches vmrag's hooks, before `installer` writes anything.

`choose_place` decides between git's configuration and files. For files, `find_routes` finds out who
starts each hook: git, husky or lefthook. `refuse_obstacles` raises the errors of writing in
advance. A *shim* is vmrag's script for a hook (`shims`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_hooks import chaining, husky, lefthook, shims
from vmrag_link.errors import HooksRefused
from vmrag_link.file_access import require_folders
from vmrag_link.git import hooks as git_hooks
from vmrag_link.git import installed_gits, refs
from vmrag_link.paths import Places
from vmrag_link.settings import HookPlace


class ChosenPlace(NamedTuple):
    configured: bool
    """True for hooks in git's configuration, False for files."""
    older: tuple[str, ...] = ()
    """Gits that run no hooks from the configuration, although the git in use does."""


def choose_place(places: Places, folder: Path, place: HookPlace, *, force: bool) -> ChosenPlace:
    """Choose between git's configuration and files, by the setting `hooks.place` and the gits on
    this machine.

    With `auto`, the configuration is chosen if all gits on this machine run hooks from there. If
    only the git in use does, it is chosen if vmrag must not write to the hooks directory. Raises
    `HooksRefused` if the setting demands the configuration, but hooks there would never run, or
    would run twice. They would run twice next to old shims in a folder outside the repository,
    which other repositories also use.
    """
    if place == "files":
        return ChosenPlace(configured=False)
    would_run_twice = not chaining.is_inside(folder, places) and any(
        _is_old(folder, hook) for hook in git_hooks.list_shims(folder)
    )
    gits = installed_gits.find_gits(places)
    older = tuple(str(git) for git in gits if not git.runs_hooks)
    runs = bool(gits) and gits[0].runs_hooks
    if place == "auto":
        is_suitable = not older or (not force and _is_refused(places, folder))
        return ChosenPlace(runs and is_suitable and not would_run_twice, older if runs else ())
    if not runs:
        raise HooksRefused(
            f"hooks.place is config, but {gits[0] if gits else 'git'} runs no hooks from its configuration.",
            hint="run 'VMRAG_HOOKS_PLACE=files vmrag install'",
        )
    if would_run_twice:
        raise HooksRefused(
            f"the hooks in {folder}, outside this repository, are also vmrag's, so they would run twice.",
            hint="run 'vmrag uninstall --force && vmrag install' to install them here only",
        )
    return ChosenPlace(configured=True)


def _is_old(folder: Path, hook: str) -> bool:
    """Return whether a shim would also run if git has run the hook from its configuration."""
    content = git_hooks.read_beginning(git_hooks.locate_shim(folder, hook))
    return (git_hooks.parse_shim_version(content) or 0) < shims.YIELDING_VERSION


def _is_refused(places: Places, folder: Path) -> bool:
    try:
        if husky.find_scripts(folder) is None:
            chaining.refuse_shared_folder(places, folder)
    except HooksRefused:
        return True
    return False


class HookRoutes(NamedTuple):
    """Hooks by the program that starts their shim."""

    by_git: tuple[str, ...] = ()
    """Hooks with a shim in git's hooks directory."""
    by_husky: tuple[str, ...] = ()
    """Hooks that husky's scripts start. With husky 9, the same hooks are also in `by_git`, until
    `npm install` rewrites that directory.
    """
    husky_folder: Path | None = None
    """The folder of husky's scripts, if they can be changed now."""
    by_lefthook: tuple[str, ...] = ()


def find_routes(places: Places, folder: Path, hooks: Sequence[str], *, force: bool) -> HookRoutes:
    """Find out which program starts each hook. `folder` is git's hooks directory.

    Raises `HooksRefused` for a hooks directory that others also use (`force` allows it).
    """
    scripts = husky.find_scripts(folder)
    on_branch = refs.read_head(places).symbolic is not None
    if scripts == folder and chaining.is_inside(folder, places) and not folder.is_symlink():  # husky 5 to 8
        if not on_branch:
            raise HooksRefused(
                f"the hooks in {folder} are husky's scripts, which belong to a branch, but HEAD is detached.",
                hint="run 'git switch BRANCH && vmrag install' to install them on a branch",
                folder=str(folder),
            )
        return HookRoutes(by_husky=tuple(hooks), husky_folder=scripts)
    if not force:
        chaining.refuse_shared_folder(places, folder)
    if scripts is not None:  # husky 9
        return HookRoutes(tuple(hooks), by_husky=tuple(hooks), husky_folder=scripts if on_branch else None)
    return HookRoutes(
        tuple(hook for hook in hooks if not git_hooks.is_lefthook(folder / hook)),
        by_lefthook=lefthook.list_handled_hooks(places, folder, hooks),
    )


def refuse_obstacles(places: Places, folder: Path, routes: HookRoutes) -> None:
    """Raise `HooksRefused` or `FileFailed` for a file in the way, before anything is written."""
    require_folders(
        places.shared, places.work_tree_folder, places.shims, places.configured_hooks, folder / chaining.FOLDER
    )
    for hook in routes.by_git:
        chaining.refuse_invalid_hook(folder / hook)
        chaining.refuse_second_hook(folder, hook)
    if routes.husky_folder:
        require_folders(routes.husky_folder)
        husky.require_writable(routes.husky_folder, routes.by_husky)
    if routes.by_lefthook:
        lefthook.require_writable(places)
