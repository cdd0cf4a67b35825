"""Where hooks are not put: more than this clone would be changed, or something would be lost."""

from __future__ import annotations

import shlex
from pathlib import Path

from vmrag_hooks import chaining
from vmrag_link.errors import HooksRefused
from vmrag_link.git import hooks
from vmrag_link.git.run import failure, git_in
from vmrag_link.paths import Places, what_it_is

OR_FORCE = " (or vmrag install --force)"


def refuse_shared(places: Places, folder: Path) -> None:
    """Raises `HooksRefused` for a hooks directory outside of the repository, or with files that git
    tracks.

    Its hint is a command for hooks of this clone that run those as well, and where it can be forced
    `OR_FORCE`.
    """
    if not folder.is_dir() and hooks.exists(folder):
        message, force = f"{_called(folder)}, which is no directory: git runs no hooks at all.", ""
    elif not inside(folder, places):
        message, force = outside(folder), OR_FORCE
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
    elif hooks.ours(own):
        steps[:0] = ["vmrag uninstall"]
    there = [] if own.is_symlink() else chaining.others(own)
    if names := [name for name in chaining.others(folder) if name not in there]:  # nobody would run them any more
        links = " ".join(shlex.quote(str(folder.resolve() / name)) for name in names)
        steps.insert(-2, f"ln -s {links} {quoted}")
    return " && ".join(steps)


def _called(folder: Path) -> str:
    what = what_it_is(folder)
    return f"{folder} is {what}" if folder.is_symlink() else f"core.hooksPath names {folder}"


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
    slot, chained = hooks.place_of(folder, hook), chaining.chained_hook(folder, hook)
    third = hooks.exists(slot) and not hooks.is_ours(slot) and hooks.exists(chained)
    if third and not chaining.replaces(slot, chained):
        raise HooksRefused(
            f"Both {slot} and {chained.relative_to(folder)} beside it are hooks of other tools; only one can be chained.",
            hint=f"Merge them into {slot.name}, then: rm {shlex.quote(str(chained))}",
            hook=hook,
        )


def outside(folder: Path) -> str:
    return f"{_called(folder)}, outside of this repository: other repositories run those hooks, too."


def inside(folder: Path, places: Places) -> bool:
    real = folder.resolve()
    return any(real.is_relative_to(root.resolve()) for root in (places.top, places.common))
