"""Which hooks there are, which were chosen, in which work trees they act, and their lines in git's
configuration: git runs them itself, from 2.54 on, before the one of its hooks directory, whoever
that belongs to. An older git ignores them.

`.git/vmrag-hooks` holds a script for each, and `config`, which has its event and its command, and
which the repository's own configuration includes. One file, replaced whole, because git dies of an
event without a command; included, so that all ends with the folder if somebody deletes that.

They act in all work trees, or, after `vmrag install --worktree`, in those with a mark. The shims
read mark and limit, because all work trees of a repository share its hooks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from vmrag_link import env, permissions, proc
from vmrag_link.git import configuration
from vmrag_link.git.run import run_git
from vmrag_link.paths import Places, write_atomically

SYNCING = ("post-checkout", "post-merge", "post-rewrite", "post-commit", "post-applypatch")
"""After these HEAD or the pin may have moved; git ignores what they say, except that a failing
post-checkout fails the checkout.
"""

CHECKING = ("pre-commit", "pre-merge-commit", "pre-push")
"""What these say decides whether git goes on."""

HOOKS = (*SYNCING, *CHECKING)
"""The hooks that are installed."""


DRY_RUN_MARK = "vmrag-hook"
"""What a hook says with `VMRAG=dry`, before its name."""


def list_chosen_hooks(places: Places) -> tuple[str, ...]:
    """The hooks that were chosen here: all, unless some were named, or a person wants none."""
    try:
        names = _choice(places).read_text(errors="replace").split()
    except FileNotFoundError:
        return HOOKS
    return tuple(hook for hook in HOOKS if hook in names)


def record_chosen_hooks(places: Places, hooks: Collection[str]) -> None:
    """Record the chosen hooks; all of them are no record."""
    if set(hooks) == set(HOOKS):
        _choice(places).unlink(missing_ok=True)
    else:
        write_atomically(_choice(places), "".join(f"{hook}\n" for hook in HOOKS if hook in hooks).encode())


def format_install_command(places: Places) -> str:
    """The command that installs as it was done before."""
    names = list_chosen_hooks(places)
    words = ["vmrag install"]
    words += ["--worktree"] if is_limited(places) else []
    words += ["--hooks", ",".join(names)] if names and names != HOOKS else []
    return " ".join(words)


def is_limited(places: Places) -> bool:
    return _limit(places).exists()


def is_active(places: Places) -> bool:
    """Whether the hooks act in this work tree, if they are installed."""
    return not is_limited(places) or _mark(places).exists()


def limit_to_work_tree(places: Places) -> None:
    """Limit the hooks to this work tree, and those that have a mark already."""
    for path in (_mark(places), _limit(places)):  # never without a mark
        permissions.make_file(path)


def unmark_work_tree(places: Places) -> bool:
    """Take this work tree's mark away; returns whether there are others."""
    _mark(places).unlink(missing_ok=True)
    return any(_marks(places))


def remove_limit(places: Places) -> None:
    """Let the hooks act in all work trees."""
    _limit(places).unlink(missing_ok=True)
    for mark in _marks(places):
        mark.unlink(missing_ok=True)


def _choice(places: Places) -> Path:
    return places.shared / "hooks"


def _limit(places: Places) -> Path:
    return places.shared / "some-work-trees"


def _mark(places: Places) -> Path:
    return places.work_tree_folder / "hooked"


def _marks(places: Places) -> Iterator[Path]:
    """The marks of all work trees, the main one included."""
    there = [places.shared / "hooked", *places.common.glob("worktrees/*/vmrag/hooked")]
    return (mark for mark in there if mark.exists())


FIRST_VERSION = (2, 54)
"""The first version of git that runs hooks from its configuration."""

INCLUDED_FILE = "vmrag-hooks/config"
_INCLUDE = ("include.path", INCLUDED_FILE)
"""Relative to the configuration that includes it, because a repository can be moved."""

_FALSE = ("false", "no", "off", "0", "")
_NAME = "vmrag-{}"
_SECTION = """\
[hook "{name}"]
	event = {hook}
	command = "{command}"
"""
# git starts it where it works. From there builtins look for the script, because a repository is
# moved, or lies elsewhere in a container. GIT_DIR comes first: with `git --git-dir`, a `.git` in
# the work tree is a stranger's.
_COMMAND = (
    'd=${GIT_DIR:-.git}; [ -d "$d" ] || read -r _ d <"$d"; '
    'c=.; [ ! -f "$d/commondir" ] || read -r c <"$d/commondir"; case $c in /*) ;; *) c=$d/$c ;; esac; '
    'f=$c/vmrag-hooks/@HOOK@; [ ! -r "$f" ] || . "$f"'
)

_BUNDLED = (
    "Applications/Xcode*.app/Contents/Developer/usr/bin/git",
    "Library/Developer/CommandLineTools/usr/bin/git",
    "Applications/*.app/Contents/Resources/git*/bin/git",  # Sourcetree, Fork
    "Applications/*.app/Contents/Resources/app/git/bin/git",  # GitHub Desktop
    "usr/lib/*/resources/app/git/bin/git",  # on Linux
    "opt/*/resources/app/git/bin/git",
)
"""Where programs with a window keep a git of their own, from the root."""


class Git(NamedTuple):
    """A git on this machine, such as `/usr/bin/git`, `2.39.5`."""

    path: str
    version: str

    @property
    def runs_hooks(self) -> bool:
        """Whether it runs those of its configuration."""
        return self._first >= FIRST_VERSION

    @property
    def runs_events(self) -> bool:
        """Whether it has `git hook run`."""
        return self._first >= (2, 36)

    @property
    def _first(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")[:2]))

    def __str__(self) -> str:
        return f"{self.path} ({self.version})"


class RunningHooks(NamedTuple):
    """The git that we use, and the hooks of ours that it runs from its configuration."""

    git: Git | None
    hooks: tuple[str, ...] = ()


def find_gits(places: Places, root: Path = Path("/")) -> tuple[Git, ...]:
    """Those on PATH, the one that we use first, and those that other programs brought along.

    What does not tell its version is none.
    """
    bundled = [str(path) for pattern in _BUNDLED for path in sorted(root.glob(pattern))]
    by_file = {Path(path).resolve(): path for path in reversed([*proc.list_programs("git", places.top), *bundled])}
    return tuple(each for path in reversed(by_file.values()) if (each := _ask(path, places)))


def _ask(path: str, places: Places) -> Git | None:
    try:
        said = proc.run([path, "version"], cwd=places.top).text
    except OSError:
        return None
    version = re.match(r"git version (\d+\.\d+(\.\d+)*)", said)
    return Git(path, version[1]) if version else None


def find_running_hooks(places: Places) -> RunningHooks:
    """Asks git for its version, where hooks are configured at all, and once as long as its
    configuration does not change.
    """
    return configuration.get_cached(places, _running) if _config(places).exists() else RunningHooks(None)


def _running(places: Places) -> RunningHooks:
    path = proc.find_program("git", places.top)
    used = _ask(path, places) if path else None
    if used is None or not used.runs_hooks:
        return RunningHooks(used)
    settings = {entry.key: entry.value for entry in configuration.list_entries(places)}
    return RunningHooks(used, tuple(hook for hook in HOOKS if _is_on(places, settings, hook)))


def _is_on(places: Places, settings: Mapping[str, str], hook: str) -> bool:
    there = settings.get(f"hook.{_NAME.format(hook)}.event") == hook and (places.configured_hooks / hook).is_file()
    return there and not _switch(settings, hook)


def find_disabling_key(places: Places, hook: str) -> str:
    """The key of git's configuration by which this hook is switched off; empty: it is not."""
    return _switch({entry.key: entry.value for entry in configuration.list_entries(places)}, hook)


def _switch(settings: Mapping[str, str], hook: str) -> str:
    """Of several values the last one counts, as for git; the second key does since 2.55."""
    keys = (f"hook.{each}.enabled" for each in (_NAME.format(hook), hook))
    return next((key for key in keys if settings.get(key, "true").lower() in _FALSE), "")


def runs_at_event(places: Places, hook: str, *, configured: bool) -> bool:
    """Whether git gets to our hook at this event, and once: it runs the event, on which ours say no
    more than that.

    No other tool's hook runs: those of the configuration are switched off, and the hooks directory
    is another one, unless ours lies there. Asks a git that has `git hook`.
    """
    keys = (entry.key for entry in configuration.list_entries(places))
    names = {
        key.removeprefix("hook.").removesuffix(".event") for key in keys if re.fullmatch(r"(?s)hook\..*\.event", key)
    }
    off = [(f"hook.{name}.enabled", "false") for name in sorted(names) if not configured or name != _NAME.format(hook)]
    off += [("core.hooksPath", os.devnull)] if configured else []
    environ = {env.SWITCH: env.DRY_RUN, **env.git_settings(above=off)}
    done = run_git(places, "hook", "run", "--ignore-missing", hook, extra=environ)
    return (done.stdout + done.stderr).splitlines().count(f"{DRY_RUN_MARK} {hook}".encode()) == 1


def list_configured_hooks(places: Places) -> tuple[str, ...]:
    """The hooks that are in git's configuration, whether it runs them or not."""
    path = _config(places)
    text = path.read_text(errors="replace") if path.is_file() else ""
    return tuple(hook for hook in HOOKS if _section(hook).splitlines()[0] in text.splitlines())


def is_current(places: Places, hook: str, script: bytes) -> bool:
    """Whether the hook is there as we would write it."""
    path, config = places.configured_hooks / hook, _config(places)
    return path.is_file() and path.read_bytes() == script and _section(hook) in config.read_text(errors="replace")


def write_hooks(places: Places, scripts: Mapping[str, bytes]) -> tuple[str, ...]:
    """Let git run these scripts, by the hooks for which they are; returns those for which that is
    new. Others of ours stay.

    Who may read git's configuration may read this: git dies of an include that it may not.
    """
    included = _INCLUDE[1] in configuration.read_config_values(places, _INCLUDE[0])
    there = list_configured_hooks(places)
    changed = [hook for hook in scripts if hook not in there or not is_current(places, hook, scripts[hook])]
    if changed:
        folder, mode = places.configured_hooks, (places.common / "config").stat().st_mode & 0o777
        if not folder.exists():
            folder.mkdir()
            folder.chmod(places.common.stat().st_mode & 0o7777)
        for hook in changed:
            write_atomically(folder / hook, scripts[hook], mode=mode)
        _write_config(places, {*there, *scripts}, mode)
    if not included:
        configuration.add_value(places, *_INCLUDE)
    return tuple(changed) if included else tuple(scripts)


def remove_hooks(places: Places, hooks: Collection[str] = HOOKS) -> tuple[str, ...]:
    """Take hooks out of git's configuration; returns those that were there."""
    there = list_configured_hooks(places)
    if left := set(there) - set(hooks):
        _write_config(places, left, _config(places).stat().st_mode & 0o777)
        for hook in hooks:
            (places.configured_hooks / hook).unlink(missing_ok=True)
    elif places.configured_hooks.is_dir():
        configuration.remove_value(places, *_INCLUDE)
        for path in places.configured_hooks.iterdir():
            path.unlink()
        places.configured_hooks.rmdir()
    return tuple(hook for hook in there if hook in hooks)


def _config(places: Places) -> Path:
    return places.configured_hooks / "config"


def _write_config(places: Places, hooks: Collection[str], mode: int) -> None:
    write_atomically(_config(places), _config_text(hooks), mode=mode)
    configuration.clear_cache(places)


def rebuild_config(path: Path) -> None:
    """Write the file again that git includes, for the hooks whose scripts are next to it.

    Needs no git: none works while that file is damaged.
    """
    hooks = [hook for hook in HOOKS if (path.parent / hook).is_file()]
    write_atomically(path, _config_text(hooks), mode=(path.parent.parent / "config").stat().st_mode & 0o777)


def _config_text(hooks: Collection[str]) -> bytes:
    return "".join(_section(hook) for hook in HOOKS if hook in hooks).encode()


def _section(hook: str) -> str:
    command = _COMMAND.replace("@HOOK@", hook).replace("\\", "\\\\").replace('"', '\\"')
    return _SECTION.format(name=_NAME.format(hook), hook=hook, command=command)
