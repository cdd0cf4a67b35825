"""Put the hooks into git's configuration, or shims into its hooks directory, and take them out
again, leaving what other tools put there as it was.

They are in one of the two: shims, which every git runs, where any git in use is older than hooks in
its configuration; the latter elsewhere, because no other tool can take their place.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_hooks import chaining, husky, lefthook, shim_files, shims
from vmrag_hooks.ways import HookRoutes, choose_place, find_routes, refuse_obstacles
from vmrag_link.errors import HooksRefused, UsageInvalid, nearest
from vmrag_link.git import hook_config, pin_merge, plumbing, sidecar_repo
from vmrag_link.git import hooks as found
from vmrag_link.git.hook_config import HOOKS, SYNCING
from vmrag_link.models import Record
from vmrag_link.paths import Places, write_atomically
from vmrag_link.settings import HookPlace


class InstallReport(Record, frozen=True):
    """Names of hooks: `written` anew, `unchanged`, and `chained` (another tool's hook was moved
    aside and runs first).

    `driver`: the merge driver of the pin was registered anew. `attributed`: `.gitattributes` sends
    the pin to it. `limited`: the hooks act only in work trees where they were installed. `scripts`:
    husky's, by their paths, which start ours and were changed; None where husky is not used, or
    where HEAD is on no branch whose files they could be. `lefthook`: the hooks that it starts.
    `configured`: they are in git's configuration; `moved`: they were in the other place before.
    `older`: the gits that run no hooks from there, although the one in use does.
    """

    folder: str
    interpreter: str
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    chained: tuple[str, ...]
    driver: bool
    attributed: bool
    limited: bool = False
    husky: bool = False
    scripts: tuple[str, ...] | None = None
    lefthook: tuple[str, ...] = ()
    configured: bool = False
    moved: bool = False
    older: tuple[str, ...] = ()


class UninstallReport(Record, frozen=True):
    """Names of hooks: `removed`, and of those `restored` to what was there before. `driver`: it was
    registered.

    `elsewhere`: the hooks stay, because other work trees use them; they do nothing here any more.
    Husky's scripts that are committed with lines of ours, by their paths: `scripts` have them no
    more; `kept` have, because they are the team's, and do nothing here any more.
    """

    folder: str
    removed: tuple[str, ...]
    restored: tuple[str, ...]
    driver: bool
    elsewhere: bool = False
    kept: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()


def parse_hooks(text: str | None) -> tuple[str, ...]:
    """The hooks of a comma-separated list; all for None. Raises `UsageInvalid` for other names."""
    names = [name.strip() for name in text.split(",")] if text is not None else HOOKS
    for name in names:
        if name not in HOOKS:
            near = nearest(name, HOOKS)
            raise UsageInvalid(
                f"There is no hook {name!r} to install." + (f" Is it {near!r}?" if near else ""),
                hint=f"--hooks {near or ','.join(HOOKS)}",
                parameter="hooks",
                value=name,
            )
    return tuple(hook for hook in HOOKS if hook in names)


def install_hooks(
    places: Places,
    *,
    python: str = sys.executable,
    hooks: Sequence[str] | None = None,
    force: bool = False,
    worktree: bool | None = None,
    place: HookPlace = "files",
    files_only: bool = False,
) -> InstallReport:
    """Write the hooks, record the interpreter, register the merge driver; a second time changes
    nothing. `place`: the setting; hooks that are in the other one move.

    `hooks`: these are added to the chosen ones; None: the chosen ones, at first all. `worktree`:
    True lets the hooks act in this work tree and others where that was said, unless they act in all
    already; False in all; None leaves that as it is. `files_only`: the repository stores no
    documents, so only the chosen post-* hooks are installed, and no merge driver.

    Raises `HooksRefused`, before anything is written, as `chosen_place`, for a hooks directory that
    others use, too (`chaining.refuse_shared`; not with `force`), where two hooks of other tools
    would have to be kept, and as `husky.require_writable` and `lefthook.require_writable`.
    """
    folder = found.find_hooks_folder(places)
    to = choose_place(places, folder, place, force=force)
    there = list_installed_hooks(places, folder)
    moved = list_own_shims(places, folder) if to.configured else hook_config.list_configured_hooks(places)
    names = {*(hook_config.list_chosen_hooks(places) or HOOKS if hooks is None else hooks), *moved}
    chosen = {*names}
    hooks = tuple(hook for hook in (SYNCING if files_only else HOOKS) if hook in names)
    ways = HookRoutes() if to.configured else find_routes(places, folder, hooks, force=force)
    refuse_obstacles(places, folder, ways)
    with shim_files.readable_failures(folder):
        sidecar_repo.prepare_folders(places)
        if worktree and (hook_config.is_limited(places) or not there):
            hook_config.limit_to_work_tree(places)
        before = hook_config.list_chosen_hooks(places) if there or places.interpreter.exists() else ()
        hook_config.record_chosen_hooks(places, {*before, *chosen})
        write_atomically(places.interpreter, python.encode() + b"\n")
        if to.configured:  # never in both: what is killed in between is in neither
            own = folder if chaining.is_inside(folder, places) else places.common / "hooks"
            _take_shims(places, own, HOOKS, everything=False)
            written = hook_config.write_hooks(
                places, {hook: shims.format_shim(hook, configured=True) for hook in hooks}
            )
            chained: tuple[str, ...] = ()
        else:
            hook_config.remove_hooks(places)
            written, chained = shim_files.write_shims(folder, ways.direct)
        started = _start_by_tools(places, folder, ways)
        if worktree is False:
            hook_config.remove_limit(places)
    driver = not files_only and pin_merge.register_driver(places, shims.format_driver_command(python))
    changed = {*written, *started.hooks}
    return InstallReport(
        str(places.configured_hooks if to.configured else folder),
        python,
        tuple(hook for hook in hooks if hook in changed),
        tuple(hook for hook in hooks if hook not in changed),
        chained,
        driver,
        pin_merge.is_attributed(places),
        hook_config.is_limited(places),
        not to.configured and husky.find_scripts(folder) is not None,
        started.scripts,
        ways.handled,
        to.configured,
        bool(moved),
        to.older,
    )


class _Started(NamedTuple):
    """The hooks that other tools start by now, and the scripts that were changed for that."""

    hooks: tuple[str, ...]
    scripts: tuple[str, ...] | None


def _start_by_tools(places: Places, folder: Path, ways: HookRoutes) -> _Started:
    names = (*ways.scripted, *ways.handled)
    changed = shim_files.write_shims(places.shims, names)[0] if names else ()
    if ways.handled:
        for hook in ways.handled:
            _give_back(folder, hook)
        before = found.list_lefthook_hooks(places)
        handled = [hook for hook in HOOKS if hook in before or hook in ways.handled]
        changed += tuple(hook for hook in ways.handled if hook not in before)
        lefthook.write_configuration(places, handled)
    if not ways.scripts:
        return _Started(changed, None)
    scripts = husky.write_scripts(ways.scripts, ways.scripted)
    return _Started((*changed, *scripts), tuple(_path_text(places, ways.scripts / hook) for hook in scripts))


def _give_back(folder: Path, hook: str) -> None:
    """A hook of lefthook's that earlier versions of ours have chained, or had moved aside by it."""
    if found.is_lefthook(chaining.find_chained_hook(folder, hook)):
        shim_files.remove_shim(folder, hook)
    if found.is_lefthook(folder / hook):
        lefthook.delete_leftover(folder, hook)


def _path_text(places: Places, path: Path) -> str:
    return path.relative_to(places.top).as_posix() if path.is_relative_to(places.top) else str(path)


def list_own_shims(places: Places, folder: Path) -> tuple[str, ...]:
    """The hooks that have a shim of ours for this repository alone."""
    there = {
        *found.list_started_shims(places),
        *(found.list_shims(folder) if chaining.is_inside(folder, places) else ()),
    }
    there |= {*found.list_shims(places.common / "hooks")}
    return tuple(hook for hook in HOOKS if hook in there)


def list_installed_hooks(places: Places, folder: Path) -> tuple[str, ...]:
    """The hooks that are in git's configuration, or have a shim of ours, in git's hooks directory
    or for other tools to start.
    """
    there = {*found.list_shims(folder), *found.list_started_shims(places), *hook_config.list_configured_hooks(places)}
    return tuple(hook for hook in HOOKS if hook in there)


def list_shared_files(places: Places) -> tuple[str, ...]:
    """Return the files of other tools that `uninstall` of everything changes or deletes."""
    names = lefthook.list_own_files(places)
    scripts = husky.find_scripts(found.find_hooks_folder(places))
    paths = [scripts / hook for hook in HOOKS if _is_committed(places, scripts / hook)] if scripts else []
    return (*names, *(_path_text(places, path) for path in paths))


def uninstall_hooks(
    places: Places,
    *,
    hooks: Sequence[str] = HOOKS,
    force: bool = False,
    worktree: bool = False,
    everything: bool = False,
) -> UninstallReport:
    """Remove our shims and, with the last of them, the recorded interpreter and the merge driver.
    From then on none is missed.

    A chained hook returns to its place, byte for byte, with its mode. `worktree`: the hooks act in
    this work tree no more, and go with the last one. `everything`: also what the team has committed
    of ours in husky's scripts. Raises `HooksRefused` for hooks that act in all work trees then, and
    for a hooks directory outside of the repository, unless `force`.
    """
    folder = found.find_hooks_folder(places)
    folders = {folder, places.common / "hooks"}  # where they went before somebody, say husky, set core.hooksPath
    there = {hook for each in folders for hook in found.list_shims(each)} | {*list_installed_hooks(places, folder)}
    if found.list_shims(folder) and not force and not chaining.is_inside(folder, places):
        raise HooksRefused(
            chaining.describe_outside(folder),
            hint=f"ls {shlex.quote(str(folder))}   (vmrag uninstall … with --force takes the hooks from every repository that uses it)",
            folder=str(folder),
        )
    if worktree and there and not hook_config.is_limited(places):
        raise HooksRefused("The hooks act in every work tree of this repository.", hint="vmrag uninstall")
    with shim_files.readable_failures(folder):
        if worktree and hook_config.unmark_work_tree(places):
            return UninstallReport(str(folder), (), (), driver=False, elsewhere=True)
        configured = hook_config.remove_hooks(places, hooks)
        restored, scripts, kept = _take_shims(places, folder, hooks, everything=everything)
        last = there <= set(hooks)
        if not last:
            hook_config.record_chosen_hooks(places, set(hook_config.list_chosen_hooks(places)) - set(hooks))
        driver = last and _forget(places)
    removed = tuple(hook for hook in hooks if hook in there)
    return UninstallReport(
        str(places.configured_hooks if configured else folder),
        removed,
        tuple(hook for hook in hooks if hook in restored),
        driver,
        kept=kept,
        scripts=scripts,
    )


def _take_shims(
    places: Places, folder: Path, hooks: Sequence[str], *, everything: bool
) -> tuple[set[str], tuple[str, ...], tuple[str, ...]]:
    """Take away shims; returns the hooks in whose places those are again that were chained, and
    what `_stop_tools` does.
    """
    folders = {folder, places.common / "hooks"}
    restored = {hook for each in folders for hook in hooks if shim_files.remove_shim(each, hook)}
    return restored, *_stop_tools(places, folder, hooks, everything=everything)


def _stop_tools(
    places: Places, folder: Path, hooks: Sequence[str], *, everything: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Take away what other tools start; returns husky's scripts that are committed with our lines:
    those that lose them, and those that keep them.
    """
    for hook in hooks:
        (places.shims / hook).unlink(missing_ok=True)
    if places.shims.is_dir() and not any(places.shims.iterdir()):
        places.shims.rmdir()
    if left := [hook for hook in found.list_lefthook_hooks(places) if hook not in hooks]:
        lefthook.write_configuration(places, left)
    else:
        lefthook.clean_configuration(places)
    scripts = husky.find_scripts(folder)
    if scripts is None:
        return (), ()
    committed = [hook for hook in hooks if _is_committed(places, scripts / hook)]
    kept = [] if everything else committed
    husky.clean_scripts(scripts, [hook for hook in hooks if hook not in kept])
    paths = tuple(_path_text(places, scripts / hook) for hook in committed)
    return (paths, ()) if everything else ((), paths)


def _is_committed(places: Places, script: Path) -> bool:
    """Whether git's index has the script with our lines."""
    if not script.is_relative_to(places.top):
        return False
    return husky.has_lines(plumbing.read_blob(places, f":{_path_text(places, script)}") or b"")


def _forget(places: Places) -> bool:
    """Remove what the shims needed; returns whether the merge driver was registered."""
    places.interpreter.unlink(missing_ok=True)
    hook_config.remove_limit(places)
    if places.shared.is_dir():
        hook_config.record_chosen_hooks(places, ())
    return pin_merge.forget_driver(places)


def runs_here(places: Places, hook: str) -> bool:
    """Whether ours does the work when git runs this hook in this work tree: from its configuration,
    or by a shim, first or behind pre-commit or prek.
    """
    if not hook_config.is_active(places):
        return False
    slot = found.locate_shim(found.find_hooks_folder(places), hook)
    return hook in hook_config.find_running_hooks(places).hooks or (found.is_ours(slot) and os.access(slot, os.X_OK))
