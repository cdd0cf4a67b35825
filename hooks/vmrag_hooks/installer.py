"""Install and remove vmrag's git hooks, for `vmrag install`, `vmrag uninstall` and `vmrag doctor`.

A hook is a shell script, called shim (`shims.format_shim`). git starts a shim in one of two ways,
and `routes.choose_place` chooses the way of all hooks:

* from git's configuration, where no other tool can replace it. This needs a recent git.
* from git's hooks directory, which is `folder` below. Other tools also write to that directory.
  The earlier hook of another tool is kept as `HOOK.vmrag-chained`, and the shim runs it first
  (`chaining`). If husky or lefthook owns the directory, it starts a shim in `.git/vmrag/shims`.

A hook never runs twice, and the hooks of other tools continue to run. `vmrag uninstall` restores
each byte of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_hooks import chaining, husky, lefthook, shim_files, shims
from vmrag_hooks.routes import HookRoutes, choose_place, find_routes, refuse_obstacles
from vmrag_link.errors import HooksRefused, UsageInvalid, nearest, quoted
from vmrag_link.file_access import write_atomically
from vmrag_link.git import folder_modes, hook_choice, hook_config, merge_driver, plumbing
from vmrag_link.git import hooks as git_hooks
from vmrag_link.git.hook_config import HOOKS, SYNCING
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.settings import HookPlace


class InstallReport(Record, frozen=True):
    """The result of an installation, with names of hooks."""

    folder: str
    interpreter: str
    written: tuple[str, ...]
    """Hooks that were written."""
    unchanged: tuple[str, ...]
    chained: tuple[str, ...]
    """Hooks of other tools that were moved aside and run first."""
    driver: bool
    """True if the merge driver of the pin was registered now."""
    attributed: bool
    """True if `.gitattributes` assigns the pin to the merge driver."""
    limited: bool = False
    """True if the hooks act only in work trees in which they were installed."""
    husky: bool = False
    scripts: tuple[str, ...] | None = None
    """Paths of husky's scripts that were changed to start the hooks.

    None without husky, or if HEAD is on no branch that could have the scripts.
    """
    lefthook: tuple[str, ...] = ()
    """Hooks that lefthook starts."""
    configured: bool = False
    """True if the hooks are in git's configuration."""
    moved: bool = False
    """True if the hooks moved from the configuration to files, or from files to the
    configuration.
    """
    older: tuple[str, ...] = ()
    """Gits that run no hooks from the configuration, although the git in use does."""


class UninstallReport(Record, frozen=True):
    """The result of a removal, with names of hooks."""

    folder: str
    removed: tuple[str, ...]
    restored: tuple[str, ...]
    """Removed hooks that were replaced by the earlier hook of another tool, which they chained."""
    driver: bool
    """True if the merge driver was registered."""
    elsewhere: bool = False
    """True if the hooks stay for other work trees, and do nothing in this one."""
    kept: tuple[str, ...] = ()
    """Paths of committed husky scripts that keep vmrag's lines, because they belong to the team.
    The lines do nothing here.
    """
    scripts: tuple[str, ...] = ()
    """Paths of committed husky scripts from which the lines were removed."""


def parse_hooks(text: str | None) -> tuple[str, ...]:
    """Return the hooks of a comma-separated list; all for None.

    Raises `UsageInvalid` for other names.
    """
    names = [name.strip() for name in text.split(",")] if text is not None else HOOKS
    for name in names:
        if name not in HOOKS:
            similar = nearest(name, HOOKS)
            raise UsageInvalid(
                f"no such hook: {name!r}." + (f" Did you mean {similar!r}?" if similar else ""),
                hint=f"use '--hooks {similar or ','.join(HOOKS)}'",
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
    """Write the hooks, record the interpreter, and register the merge driver. A second call changes
    nothing.

    * `hooks`: hooks to add to those that were chosen before. With None, the choice stays. At first,
      all hooks are chosen.
    * `worktree`: True to let the hooks act only in this work tree and in others with the same
      choice, unless they already act in all. False for all work trees. None to keep the choice.
    * `place`: the setting `hooks.place`. Hooks in files move to the configuration, or back.
    * `files_only`: the repository stores no documents, so only the chosen post-* hooks are
      installed, and no merge driver.

    Before it writes anything, it raises `HooksRefused` for a hooks directory that others also use
    (`force` allows it), if two hooks of other tools would have to be kept, or if `place` does not
    work. It raises `FileFailed` if a file of husky or lefthook is not a regular file.
    """
    folder = git_hooks.find_hooks_folder(places)
    configured, older = choose_place(places, folder, place, force=force)
    hooks_before = list_installed_hooks(places, folder)
    moving = list_own_shims(places, folder) if configured else hook_config.list_configured_hooks(places)
    if hooks is None:
        hooks = hook_choice.list_chosen_hooks(places) or HOOKS
    chosen = {*hooks, *moving}
    installed = tuple(hook for hook in (SYNCING if files_only else HOOKS) if hook in chosen)
    routes = HookRoutes() if configured else find_routes(places, folder, installed, force=force)
    refuse_obstacles(places, folder, routes)
    with shim_files.readable_failures(folder):
        folder_modes.prepare_folders(places)
        if worktree and (hook_choice.is_limited(places) or not hooks_before):
            hook_choice.limit_to_work_tree(places)
        if hooks_before or places.interpreter.exists():  # not the first installation
            chosen.update(hook_choice.list_chosen_hooks(places))
        hook_choice.record_chosen_hooks(places, chosen)
        write_atomically(places.interpreter, python.encode() + b"\n")
        written = _write_config(places, folder, installed) if configured else _write_files(places, folder, routes)
        if worktree is False:
            hook_choice.remove_limit(places)
    driver = not files_only and merge_driver.register_driver(places, shims.format_driver_command(python))
    return InstallReport(
        str(places.configured_hooks if configured else folder),
        python,
        written=tuple(hook for hook in installed if hook in written.hooks),
        unchanged=tuple(hook for hook in installed if hook not in written.hooks),
        chained=written.chained,
        driver=driver,
        attributed=merge_driver.is_attributed(places),
        limited=hook_choice.is_limited(places),
        husky=not configured and husky.find_scripts(folder) is not None,
        scripts=written.scripts,
        lefthook=routes.by_lefthook,
        configured=configured,
        moved=bool(moving),
        older=older,
    )


class _WrittenHooks(NamedTuple):
    hooks: tuple[str, ...]
    chained: tuple[str, ...] = ()
    """Hooks that now run another tool's hook first."""
    scripts: tuple[str, ...] | None = None
    """Paths of husky's scripts that were changed to start the hooks; None without husky."""


def _write_config(places: Places, folder: Path, hooks: Sequence[str]) -> _WrittenHooks:
    """Write hooks to git's configuration.

    The shims are removed first: after a kill, a hook may be in neither place, but never in both.
    """
    own_folder = folder if chaining.is_inside(folder, places) else places.common / "hooks"
    _remove_shims(places, own_folder, HOOKS, everything=False)
    scripts = {hook: shims.format_shim(hook, configured=True) for hook in hooks}
    return _WrittenHooks(hook_config.write_hooks(places, scripts))


def _write_files(places: Places, folder: Path, routes: HookRoutes) -> _WrittenHooks:
    """Write shims to the hooks directory, and let husky or lefthook start the rest."""
    hook_config.remove_hooks(places)
    written, chained = shim_files.write_shims(folder, routes.by_git)
    if started := (*routes.by_husky, *routes.by_lefthook):
        written += shim_files.write_shims(places.shims, started).written
    if routes.by_lefthook:
        for hook in routes.by_lefthook:
            _restore_lefthook_hook(folder, hook)
        started_before = git_hooks.list_lefthook_hooks(places)
        written += tuple(hook for hook in routes.by_lefthook if hook not in started_before)
        lefthook.write_configuration(places, [hook for hook in HOOKS if hook in {*started_before, *routes.by_lefthook}])
    if not routes.husky_folder:
        return _WrittenHooks(written, chained)
    changed = husky.write_scripts(routes.husky_folder, routes.by_husky)
    paths = tuple(_format_path(places, routes.husky_folder / hook) for hook in changed)
    return _WrittenHooks((*written, *changed), chained, paths)


def _restore_lefthook_hook(folder: Path, hook: str) -> None:
    """Restore a hook that lefthook moved aside, or that earlier versions of vmrag chained."""
    if git_hooks.is_lefthook(chaining.find_chained_hook(folder, hook)):
        shim_files.remove_shim(folder, hook)
    if git_hooks.is_lefthook(folder / hook):
        lefthook.delete_leftover(folder, hook)


def _format_path(places: Places, path: Path) -> str:
    return path.relative_to(places.top).as_posix() if path.is_relative_to(places.top) else str(path)


def list_own_shims(places: Places, folder: Path) -> tuple[str, ...]:
    """Return the hooks with a vmrag shim that serves only this repository, in any folder."""
    hooks = {*git_hooks.list_started_shims(places), *git_hooks.list_shims(places.common / "hooks")}
    if chaining.is_inside(folder, places):
        hooks.update(git_hooks.list_shims(folder))
    return tuple(hook for hook in HOOKS if hook in hooks)


def list_installed_hooks(places: Places, folder: Path) -> tuple[str, ...]:
    """Return the hooks of vmrag in git's configuration and in git's hooks directory, and those that
    husky or lefthook starts.
    """
    hooks = {
        *git_hooks.list_shims(folder),
        *git_hooks.list_started_shims(places),
        *hook_config.list_configured_hooks(places),
    }
    return tuple(hook for hook in HOOKS if hook in hooks)


def list_shared_files(places: Places) -> tuple[str, ...]:
    """Return the files of husky and lefthook that a complete `uninstall_hooks` changes or
    deletes.
    """
    paths = lefthook.list_own_files(places)
    husky_folder = husky.find_scripts(git_hooks.find_hooks_folder(places))
    if husky_folder is not None:
        scripts = [husky_folder / hook for hook in HOOKS if _is_committed(places, husky_folder / hook)]
        paths += tuple(_format_path(places, script) for script in scripts)
    return paths


def uninstall_hooks(
    places: Places,
    *,
    hooks: Sequence[str] = HOOKS,
    force: bool = False,
    worktree: bool = False,
    everything: bool = False,
) -> UninstallReport:
    """Remove hooks and, with the last of them, the recorded interpreter and the merge driver.

    From then on, vmrag reports no missing hooks. A chained hook returns to its path, byte for byte,
    with its mode.

    * `worktree`: the hooks no longer act in this work tree. They are removed if they act in no
      other one.
    * `everything`: also remove the lines in husky's committed scripts.

    Raises `HooksRefused` with `worktree` for hooks that act in all work trees, and, without
    `force`, for a hooks directory outside the repository.
    """
    folder = git_hooks.find_hooks_folder(places)
    installed = {*list_installed_hooks(places, folder), *git_hooks.list_shims(places.common / "hooks")}
    if git_hooks.list_shims(folder) and not force and not chaining.is_inside(folder, places):
        raise HooksRefused(
            chaining.describe_outside(folder),
            hint=f"run 'ls {quoted(str(folder))}' to see them, or run 'vmrag uninstall' with --force to remove "
            "the hooks from all repositories that use it",
            folder=str(folder),
        )
    if worktree and installed and not hook_choice.is_limited(places):
        raise HooksRefused(
            "the hooks act in all worktrees of this repository.", hint="run 'vmrag uninstall' to remove them everywhere"
        )
    with shim_files.readable_failures(folder):
        if worktree and hook_choice.unmark_work_tree(places):
            return UninstallReport(str(folder), (), (), driver=False, elsewhere=True)
        configured = hook_config.remove_hooks(places, hooks)
        shim_removal = _remove_shims(places, folder, hooks, everything=everything)
        if installed <= set(hooks):
            driver = _remove_records(places)
        else:
            driver = False
            hook_choice.record_chosen_hooks(places, set(hook_choice.list_chosen_hooks(places)) - set(hooks))
    return UninstallReport(
        str(places.configured_hooks if configured else folder),
        removed=tuple(hook for hook in hooks if hook in installed),
        restored=tuple(hook for hook in hooks if hook in shim_removal.restored),
        driver=driver,
        kept=shim_removal.kept,
        scripts=shim_removal.scripts,
    )


class _ShimRemoval(NamedTuple):
    restored: set[str]
    """Hooks whose chained hook is back at its path."""
    kept: tuple[str, ...] = ()
    """Paths of husky's committed scripts that keep vmrag's lines."""
    scripts: tuple[str, ...] = ()
    """Paths of husky's committed scripts that lost vmrag's lines."""


def _remove_shims(places: Places, folder: Path, hooks: Sequence[str], *, everything: bool) -> _ShimRemoval:
    """Remove shims, and the lines by which lefthook and husky start them."""
    folders = {folder, places.common / "hooks"}  # git used the second one before a tool set core.hooksPath
    restored = {hook for shim_folder in folders for hook in hooks if shim_files.remove_shim(shim_folder, hook)}
    for hook in hooks:
        (places.shims / hook).unlink(missing_ok=True)
    if places.shims.is_dir() and not any(places.shims.iterdir()):
        places.shims.rmdir()
    if remaining := [hook for hook in git_hooks.list_lefthook_hooks(places) if hook not in hooks]:
        lefthook.write_configuration(places, remaining)
    else:
        lefthook.clean_configuration(places)
    husky_folder = husky.find_scripts(folder)
    if husky_folder is None:
        return _ShimRemoval(restored)
    committed = [hook for hook in hooks if _is_committed(places, husky_folder / hook)]
    paths = tuple(_format_path(places, husky_folder / hook) for hook in committed)
    if everything:
        husky.clean_scripts(husky_folder, hooks)
        return _ShimRemoval(restored, scripts=paths)
    husky.clean_scripts(husky_folder, [hook for hook in hooks if hook not in committed])
    return _ShimRemoval(restored, kept=paths)


def _is_committed(places: Places, script: Path) -> bool:
    """Return whether git's index has husky's script with vmrag's lines."""
    if not script.is_relative_to(places.top):
        return False
    return husky.has_lines(plumbing.read_blob(places, f":{_format_path(places, script)}") or b"")


def _remove_records(places: Places) -> bool:
    """Remove the files that the shims needed, and return whether the merge driver was
    registered.
    """
    places.interpreter.unlink(missing_ok=True)
    hook_choice.remove_limit(places)
    if places.shared.is_dir():
        hook_choice.record_chosen_hooks(places, ())
    return merge_driver.forget_driver(places)


def runs_here(places: Places, hook: str) -> bool:
    """Return whether vmrag acts when git runs this hook in this work tree.

    git starts the hook from its configuration or its hooks directory, where pre-commit or prek may
    start it.
    """
    if not hook_choice.is_active(places):
        return False
    if hook in hook_config.find_running_hooks(places).hooks:
        return True
    shim = git_hooks.locate_shim(git_hooks.find_hooks_folder(places), hook)
    return git_hooks.is_ours(shim) and os.access(shim, os.X_OK)
