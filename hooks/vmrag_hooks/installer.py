"""Put the shims into git's hooks directory and take them out again, leaving what other tools put
there as it was.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_hooks import chaining, driver_command, scope, shims
from vmrag_hooks.shims import HOOKS
from vmrag_link.errors import FileFailed, HooksRefused, UsageInvalid
from vmrag_link.git import pin_merge, sharing
from vmrag_link.git.run import demand, failure, git_in
from vmrag_link.models import Record
from vmrag_link.paths import Places, require_folders, what_it_is, write_atomically
from vmrag_link.suggest import nearest

OR_FORCE = " (or vmrag install --force)"


class InstallReport(Record, frozen=True):
    """Names of hooks: `written` anew, `unchanged`, and `chained` (another tool's hook was moved
    aside and runs first).

    `driver`: the merge driver of the pin was registered anew. `attributed`: `.gitattributes` sends
    the pin to it. `limited`: the hooks act only in work trees where they were installed. `husky`:
    the folder is husky's, which rewrites its hooks whenever it runs.
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


class UninstallReport(Record, frozen=True):
    """Names of hooks: `removed`, and of those `restored` to what was there before. `driver`: it was
    registered.

    `elsewhere`: the hooks stay, because other work trees use them; they do nothing here any more.
    """

    folder: str
    removed: tuple[str, ...]
    restored: tuple[str, ...]
    driver: bool
    elsewhere: bool = False


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


def install(
    places: Places,
    *,
    python: str = sys.executable,
    hooks: Sequence[str] | None = None,
    force: bool = False,
    worktree: bool | None = None,
) -> InstallReport:
    """Write the shims, record the interpreter, register the merge driver; a second time changes
    nothing.

    `hooks`: these are added to the chosen ones; None: the chosen ones, at first all. `worktree`:
    True lets the hooks act in this work tree and others where that was said, unless they act in all
    already; False in all; None leaves that as it is. Raises `HooksRefused`, before anything is
    written, for a hooks directory that others use, too (`refuse_shared`; not with `force`), and
    where two hooks of other tools would have to be kept.
    """
    folder = hooks_folder(places)
    if hooks is None:
        hooks = scope.chosen(places)
    if not force:
        refuse_shared(places, folder)
    require_folders(places.shared, places.own, folder / chaining.FOLDER)
    for hook in hooks:
        refuse_what_is_no_hook(folder / hook)
        refuse_a_second_chained_hook(folder, hook)
    with readable_failures(folder):
        sharing.prepare(places)
        there = ours(folder)
        if worktree and (scope.is_limited(places) or not there):
            scope.limit(places)
        before = scope.chosen(places) if there or places.interpreter.exists() else ()
        scope.choose(places, {*before, *hooks})
        written, chained = write_shims(folder, hooks)
        write_atomically(places.interpreter, python.encode() + b"\n")
        if worktree is False:
            scope.widen(places)
    driver = pin_merge.register_driver(places, driver_command.command(python))
    return InstallReport(
        str(folder),
        python,
        written,
        tuple(hook for hook in hooks if hook not in written),
        chained,
        driver,
        pin_merge.is_attributed(places),
        scope.is_limited(places),
        any(chaining.is_husky(chaining.chained_hook(folder, hook)) for hook in hooks),
    )


def uninstall(
    places: Places, *, hooks: Sequence[str] = HOOKS, force: bool = False, worktree: bool = False
) -> UninstallReport:
    """Remove our shims and, with the last of them, the recorded interpreter and the merge driver.

    A chained hook returns to its place, byte for byte, with its mode. `worktree`: the hooks act in
    this work tree no more, and go with the last one. Raises `HooksRefused` for hooks that act in
    all work trees then, and for a hooks directory outside of the repository, unless `force`.
    """
    folder = hooks_folder(places)
    folders = {folder, places.common / "hooks"}  # where they went before somebody, say husky, set core.hooksPath
    there = {hook for each in folders for hook in ours(each)}
    if ours(folder) and not force and not inside(folder, places):
        raise HooksRefused(_outside(folder), hint="vmrag uninstall --force", folder=str(folder))
    if worktree and there and not scope.is_limited(places):
        raise HooksRefused("The hooks act in every work tree of this repository.", hint="vmrag uninstall")
    with readable_failures(folder):
        if worktree and scope.leave(places):
            return UninstallReport(str(folder), (), (), driver=False, elsewhere=True)
        restored = {hook for each in folders for hook in hooks if _remove_shim(each, hook)}
        last = there <= set(hooks)
        if not last:
            scope.choose(places, set(scope.chosen(places)) - set(hooks))
        driver = last and _forget(places)
    removed = tuple(hook for hook in hooks if hook in there)
    return UninstallReport(str(folder), removed, tuple(hook for hook in hooks if hook in restored), driver)


def write_shims(folder: Path, hooks: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the shims; returns those that were missing or different, and those of them that chain
    another hook now.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = tuple(hook for hook in hooks if not _is_current(place_of(folder, hook), hook))
    return written, tuple([hook for hook in written if _write_shim(place_of(folder, hook), hook)])


def foreign(folder: Path) -> tuple[str, ...]:
    """The hooks of other tools that lie where ours would."""
    return tuple(hook for hook in HOOKS if chaining.exists(folder / hook) and not chaining.is_ours(folder / hook))


def _forget(places: Places) -> bool:
    """Remove what the shims needed; returns whether the merge driver was registered."""
    places.interpreter.unlink(missing_ok=True)
    scope.widen(places)
    scope.choose(places, HOOKS)
    return pin_merge.forget_driver(places)


def runs_here(places: Places, hook: str) -> bool:
    """Whether a shim of ours does the work when git runs this hook in this work tree, first or
    behind pre-commit or prek.
    """
    slot = place_of(hooks_folder(places), hook)
    return chaining.is_ours(slot) and os.access(slot, os.X_OK) and scope.acts(places)


def hooks_folder(places: Places) -> Path:
    """Where git looks for hooks: shared by all work trees, or core.hooksPath."""
    return places.top / demand(places, "rev-parse", "--git-path", "hooks").text.removesuffix("\n")


def place_of(folder: Path, hook: str) -> Path:
    """Where our shim is, or belongs: behind pre-commit or prek, if that moved it aside to run it
    from there.
    """
    front, legacy = folder / hook, folder / f"{hook}.legacy"
    return legacy if chaining.is_ours(legacy) and chaining.is_framework(front) else front


def ours(folder: Path) -> tuple[str, ...]:
    """The hooks that have a shim of ours, of any version."""
    return tuple(hook for hook in HOOKS if chaining.is_ours(place_of(folder, hook)))


def _write_shim(slot: Path, hook: str) -> bool:
    """Write the shim; returns whether another tool's hook was moved aside.

    Everything that a full disk stops comes before the renames.
    """
    fresh = slot.with_name(f"{hook}.vmrag-new")
    write_atomically(fresh, shims.text(hook))
    fresh.chmod(chaining.EXECUTABLE)
    foreign = chaining.exists(slot) and not chaining.is_ours(slot)
    if foreign:
        chaining.chain(slot.parent, hook)
    fresh.replace(slot)
    return foreign


def _remove_shim(folder: Path, hook: str) -> bool:
    """Remove the shim; returns whether the hook that was there before is back."""
    slot, front, chained = place_of(folder, hook), folder / hook, chaining.chained_hook(folder, hook)
    if chaining.is_ours(slot):
        slot.unlink()
    if not chaining.exists(chained):
        return False
    # Its tool wrote it again, over our shim or in front of it:
    if chaining.exists(front) and chaining.replaces(front, chained):
        chaining.drop(folder, hook)
        return False
    if chaining.exists(slot):  # somebody else's: nobody runs the chained one, but it is not ours to throw away
        return False
    chaining.restore(folder, hook, slot)
    return True


def refuse_shared(places: Places, folder: Path) -> None:
    """Raises `HooksRefused` for a hooks directory outside of the repository, or with files that git
    tracks.

    Its hint is a command for hooks of this clone that run those as well, and where it can be forced
    `OR_FORCE`.
    """
    if not folder.is_dir() and chaining.exists(folder):
        message, force = f"{_called(folder)}, which is no directory: git runs no hooks at all.", ""
    elif not inside(folder, places):
        message, force = _outside(folder), OR_FORCE
    elif _is_tracked(places, folder):
        message = f"git tracks the hooks in {folder}: they would be changed for everybody, and stand in the way of a checkout."
        force = OR_FORCE
    elif folder.is_symlink():
        message, force = f"{_called(folder)}: what is written there is written elsewhere.", OR_FORCE
    else:
        return
    raise HooksRefused(message, hint=_hooks_of_this_clone(places, folder) + force, folder=str(folder))


def _hooks_of_this_clone(places: Places, folder: Path) -> str:
    own = places.common / "hooks"
    quoted = shlex.quote(str(own))
    steps = [f"git config --local core.hooksPath {quoted}", "vmrag install"]
    if not own.is_dir() or own.is_symlink():
        steps[:0] = [f"rm -f {quoted}", f"mkdir {quoted}"]
    elif ours(own):
        steps[:0] = ["vmrag uninstall"]
    there = [] if own.is_symlink() else chaining.others(own)
    if names := [name for name in chaining.others(folder) if name not in there]:  # nobody would run them any more
        links = " ".join(shlex.quote(str(folder.resolve() / name)) for name in names)
        steps.insert(-2, f"ln -s {links} {quoted}")
    return " && ".join(steps)


def _called(folder: Path) -> str:
    what = what_it_is(folder)
    return f"{folder} is {what}" if folder.is_symlink() else f"core.hooksPath names {folder}"


def _outside(folder: Path) -> str:
    return f"{_called(folder)}, outside of this repository: other repositories run those hooks, too."


def _is_tracked(places: Places, folder: Path) -> bool:
    """Whether this repository, or a submodule of it, tracks files in the folder."""
    if not folder.is_dir() or folder.resolve().is_relative_to(places.common.resolve()):
        return False
    done = git_in(folder, "ls-files", "-z")
    if done.returncode:
        raise failure(("ls-files",), done)
    return bool(done.stdout)


def refuse_what_is_no_hook(slot: Path) -> None:
    """Raise `HooksRefused` for what git cannot run, such as a folder or a pipe. A link to a program
    is a hook.
    """
    if slot.exists() and not slot.is_file():
        raise HooksRefused(
            f"{slot} is {what_it_is(slot)}, and no hook.",
            hint=f"mv {shlex.quote(str(slot))} {shlex.quote(f'{slot}.before')}",
            hook=slot.name,
        )


def refuse_a_second_chained_hook(folder: Path, hook: str) -> None:
    slot, chained = place_of(folder, hook), chaining.chained_hook(folder, hook)
    third = chaining.exists(slot) and not chaining.is_ours(slot) and chaining.exists(chained)
    if third and not chaining.replaces(slot, chained):
        raise HooksRefused(
            f"Both {slot} and {chained.relative_to(folder)} beside it are hooks of other tools; only one can be chained.",
            hint=f"Merge them into {slot.name}, then: rm {shlex.quote(str(chained))}",
            hook=hook,
        )


def inside(folder: Path, places: Places) -> bool:
    real = folder.resolve()
    return any(real.is_relative_to(root.resolve()) for root in (places.top, places.common))


def _is_current(path: Path, hook: str) -> bool:
    try:
        return path.read_bytes() == shims.text(hook) and path.stat().st_mode & 0o777 == chaining.EXECUTABLE
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False


@contextlib.contextmanager
def readable_failures(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileFailed(
            f"Cannot change the hooks in {folder}: {error.strerror} ({error.filename})", hint=f"ls -la '{folder}'"
        ) from error
