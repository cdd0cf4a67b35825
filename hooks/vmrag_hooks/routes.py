"""The place of the hooks, the routes by which git reaches them, and obstacles."""

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
    """The place of the hooks.

    `configured` is True for git's configuration. `older` has the gits that are too old for that, if
    the git in use is not.
    """

    configured: bool
    older: tuple[str, ...] = ()


def choose_place(places: Places, folder: Path, place: HookPlace, *, force: bool) -> ChosenPlace:
    """Choose the place of the hooks, by the setting and the gits on this machine.

    With an older git, the configuration is chosen only if the hooks directory is refused. Raises
    `HooksRefused` if the setting demands the configuration, but hooks there would never run, or
    would run twice. They would run twice next to old shims in a folder outside the repository,
    which also serve others.
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
    return (
        git_hooks.parse_shim_version(git_hooks.read_beginning(git_hooks.locate_shim(folder, hook))) or 0
    ) < shims.YIELDING_VERSION


def _is_refused(places: Places, folder: Path) -> bool:
    try:
        if husky.find_scripts(folder) is None:
            chaining.refuse_shared_folder(places, folder)
    except HooksRefused:
        return True
    return False


class HookRoutes(NamedTuple):
    """How git reaches the hooks.

    A shim is in its hooks directory (`direct`), or a tool starts one: husky (`scripted`) from
    scripts in a folder that can be changed now, or lefthook (`handled`).
    """

    direct: tuple[str, ...] = ()
    scripted: tuple[str, ...] = ()
    scripts: Path | None = None
    handled: tuple[str, ...] = ()


def find_routes(places: Places, folder: Path, hooks: Sequence[str], *, force: bool) -> HookRoutes:
    """Return how git reaches the hooks.

    Raises `HooksRefused` for a hooks directory that others also use.
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
        return HookRoutes((), tuple(hooks), scripts)
    if not force:
        chaining.refuse_shared_folder(places, folder)
    if scripts is not None:
        return HookRoutes(tuple(hooks), tuple(hooks), scripts if on_branch else None)
    direct = tuple(hook for hook in hooks if not git_hooks.is_lefthook(folder / hook))
    return HookRoutes(direct, handled=lefthook.list_handled_hooks(places, folder, hooks))


def refuse_obstacles(places: Places, folder: Path, routes: HookRoutes) -> None:
    """Raise the error for an obstacle, before anything is written."""
    require_folders(
        places.shared, places.work_tree_folder, places.shims, places.configured_hooks, folder / chaining.FOLDER
    )
    for hook in routes.direct:
        chaining.refuse_invalid_hook(folder / hook)
        chaining.refuse_second_hook(folder, hook)
    if routes.scripts:
        require_folders(routes.scripts)
        husky.require_writable(routes.scripts, routes.scripted)
    if routes.handled:
        lefthook.require_writable(places)
