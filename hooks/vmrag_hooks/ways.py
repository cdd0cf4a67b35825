"""Where the hooks go, how git gets to them there, and what stands in the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_hooks import chaining, husky, lefthook, shims
from vmrag_link.errors import HooksRefused
from vmrag_link.git import hook_config, refs
from vmrag_link.git import hooks as found
from vmrag_link.paths import Places, require_folders
from vmrag_link.settings import HookPlace


class ChosenPlace(NamedTuple):
    """Whether hooks go into git's configuration, and the gits that are `older` than that, where the
    one in use is not.
    """

    configured: bool
    older: tuple[str, ...] = ()


def choose_place(places: Places, folder: Path, place: HookPlace, *, force: bool) -> ChosenPlace:
    """Where the hooks go, by the setting and the gits that are here.

    With an older git among them, into the configuration only if the hooks directory is refused.
    Raises `HooksRefused` where the configuration is demanded, and hooks there would run never, or
    twice: beside old shims in a folder outside of the repository, where they serve others.
    """
    if place == "files":
        return ChosenPlace(configured=False)
    twice = not chaining.is_inside(folder, places) and any(_is_old(folder, hook) for hook in found.list_shims(folder))
    gits = hook_config.find_gits(places)
    older = tuple(str(git) for git in gits if not git.runs_hooks)
    runs = bool(gits) and gits[0].runs_hooks
    if place == "auto":
        good = not older or (not force and _is_refused(places, folder))
        return ChosenPlace(runs and good and not twice, older if runs else ())
    if not runs:
        raise HooksRefused(
            f"hooks.place is config, and {gits[0] if gits else 'git'} runs no hooks from its configuration.",
            hint="VMRAG_HOOKS_PLACE=files vmrag install",
        )
    if twice:
        raise HooksRefused(
            f"The hooks in {folder}, outside of this repository, are vmrag's already: they would run twice.",
            hint="vmrag uninstall --force && vmrag install",
        )
    return ChosenPlace(configured=True)


def _is_old(folder: Path, hook: str) -> bool:
    return (found.parse_shim_version(found.read_head(found.locate_shim(folder, hook))) or 0) < shims.STANDS_BACK


def _is_refused(places: Places, folder: Path) -> bool:
    try:
        if husky.find_scripts(folder) is None:
            chaining.refuse_shared_folder(places, folder)
    except HooksRefused:
        return True
    return False


class HookRoutes(NamedTuple):
    """How git gets to the hooks: by a shim in its hooks directory (`direct`), or by tools that
    start one: husky (`scripted`), from the scripts in a folder that may be changed now; lefthook
    (`handled`).
    """

    direct: tuple[str, ...] = ()
    scripted: tuple[str, ...] = ()
    scripts: Path | None = None
    handled: tuple[str, ...] = ()


def find_routes(places: Places, folder: Path, hooks: Sequence[str], *, force: bool) -> HookRoutes:
    """Raises `HooksRefused` for a hooks directory that others use, too."""
    scripts = husky.find_scripts(folder)
    on_branch = refs.read_head(places).symbolic is not None
    if scripts == folder and chaining.is_inside(folder, places) and not folder.is_symlink():  # husky 5 to 8
        if not on_branch:
            raise HooksRefused(
                f"The hooks in {folder} are husky's scripts, files of a branch, and HEAD is detached.",
                hint="git switch BRANCH && vmrag install",
                folder=str(folder),
            )
        return HookRoutes((), tuple(hooks), scripts)
    if not force:
        chaining.refuse_shared_folder(places, folder)
    if scripts is not None:
        return HookRoutes(tuple(hooks), tuple(hooks), scripts if on_branch else None)
    direct = tuple(hook for hook in hooks if not found.is_lefthook(folder / hook))
    return HookRoutes(direct, handled=lefthook.list_handled_hooks(places, folder, hooks))


def refuse_obstacles(places: Places, folder: Path, ways: HookRoutes) -> None:
    """Raise what stands in the way, before anything is written."""
    require_folders(
        places.shared, places.work_tree_folder, places.shims, places.configured_hooks, folder / chaining.FOLDER
    )
    for hook in ways.direct:
        chaining.refuse_invalid_hook(folder / hook)
        chaining.refuse_second_hook(folder, hook)
    if ways.scripts:
        require_folders(ways.scripts)
        husky.require_writable(ways.scripts, ways.scripted)
    if ways.handled:
        lefthook.require_writable(places)
