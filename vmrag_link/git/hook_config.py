"""vmrag's hooks, and their entries in git's configuration.

From 2.54 on git runs hooks from its configuration, before the hook of its hooks directory, even if
that belongs to another tool. An older git ignores these entries. Which hooks the user chose, and in
which work trees they act, is recorded by `hook_choice`.

`.git/vmrag-hooks` contains a script for each hook, and `config` with its event and its command,
which the repository's own configuration includes. `config` is one file and is replaced whole,
because git fails if an event has no command. It is included, so deleting the folder removes all
entries.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from vmrag_link import env, proc
from vmrag_link.file_access import write_atomically
from vmrag_link.git import configuration, installed_gits
from vmrag_link.git.run import run_git
from vmrag_link.paths import Places

SYNCING = ("post-checkout", "post-merge", "post-rewrite", "post-commit", "post-applypatch")
"""Hooks after which HEAD or the pin may have moved. git ignores their exit code, except that a
failing post-checkout fails the checkout.
"""

CHECKING = ("pre-commit", "pre-merge-commit", "pre-push")
"""Hooks whose exit code decides whether git continues."""

HOOKS = (*SYNCING, *CHECKING)
"""The hooks that are installed."""

DRY_RUN_MARK = "vmrag-hook"
"""Text that a hook prints with `VMRAG=dry`, followed by its name."""

INCLUDED_FILE = "vmrag-hooks/config"
"""Relative to the configuration that includes it, because a repository can be moved."""
_INCLUDE = ("include.path", INCLUDED_FILE)

_FALSE = ("false", "no", "off", "0", "")
_NAME = "vmrag-{}"
_SECTION = """\
[hook "{name}"]
	event = {hook}
	command = "{command}"
"""
# git starts the command in its working directory. From there shell builtins find the script,
# because a repository can be moved, or be elsewhere in a container. GIT_DIR comes first: with
# `git --git-dir`, a `.git` in the work tree belongs to another repository.
_COMMAND = (
    'd=${GIT_DIR:-.git}; [ -d "$d" ] || read -r _ d <"$d"; '
    'c=.; [ ! -f "$d/commondir" ] || read -r c <"$d/commondir"; case $c in /*) ;; *) c=$d/$c ;; esac; '
    'f=$c/vmrag-hooks/@HOOK@; [ ! -r "$f" ] || . "$f"'
)


class RunningHooks(NamedTuple):
    """The git that vmrag uses, and the vmrag hooks that it runs from its configuration."""

    git: installed_gits.Git | None
    hooks: tuple[str, ...] = ()


def find_running_hooks(places: Places) -> RunningHooks:
    """Return the hooks that git runs from its configuration.

    git's version is read only if hooks are configured. The result is cached until the
    configuration changes.
    """
    if not _config_path(places).exists():
        return RunningHooks(None)
    return configuration.get_cached(places, _read_running_hooks)


def _read_running_hooks(places: Places) -> RunningHooks:
    path = proc.find_program("git", places.top)
    git = installed_gits.read_version(path, places) if path else None
    if git is None or not git.runs_hooks:
        return RunningHooks(git)
    settings = {entry.key: entry.value for entry in configuration.list_entries(places)}
    return RunningHooks(git, tuple(hook for hook in HOOKS if _is_enabled(places, settings, hook)))


def _is_enabled(places: Places, settings: Mapping[str, str], hook: str) -> bool:
    is_configured = settings.get(f"hook.{_NAME.format(hook)}.event") == hook
    has_script = (places.configured_hooks / hook).is_file()
    return is_configured and has_script and not _find_disabling_key(settings, hook)


def find_disabling_key(places: Places, hook: str) -> str:
    """Return the configuration key that disables this hook, or an empty text."""
    return _find_disabling_key({entry.key: entry.value for entry in configuration.list_entries(places)}, hook)


def _find_disabling_key(settings: Mapping[str, str], hook: str) -> str:
    """Return the key that disables a hook. If a key has several values, the last one applies, as in
    git. git reads the second key since 2.55.
    """
    keys = (f"hook.{name}.enabled" for name in (_NAME.format(hook), hook))
    return next((key for key in keys if settings.get(key, "true").lower() in _FALSE), "")


def runs_at_event(places: Places, hook: str, *, configured: bool) -> bool:
    """Return whether git runs our hook exactly once at this event. The event is run with
    `VMRAG=dry`, so our hooks only print their names.

    `configured`: our hook is in git's configuration, not in the hooks directory. Hooks of other
    tools do not run: those of the configuration are disabled, and the hooks directory is replaced
    unless our hook is in it. git must have `git hook run`.
    """
    events = configuration.read_config_entries(places, r"hook\..*\.event")
    disabled = {entry.key.removeprefix("hook.").removesuffix(".event") for entry in events}
    if configured:
        disabled.discard(_NAME.format(hook))
    settings = [(f"hook.{name}.enabled", "false") for name in sorted(disabled)]
    settings += [("core.hooksPath", os.devnull)] if configured else []
    environ = {env.SWITCH: env.DRY_RUN, **env.git_settings(above=settings)}
    finished = run_git(places, "hook", "run", "--ignore-missing", hook, extra=environ)
    return (finished.stdout + finished.stderr).splitlines().count(f"{DRY_RUN_MARK} {hook}".encode()) == 1


def list_configured_hooks(places: Places) -> tuple[str, ...]:
    """Return the hooks in git's configuration, whether git runs them or not."""
    path = _config_path(places)
    text = path.read_text(errors="replace") if path.is_file() else ""
    return tuple(hook for hook in HOOKS if _format_section(hook).splitlines()[0] in text.splitlines())


def is_current(places: Places, hook: str, script: bytes) -> bool:
    """Return whether the hook is configured with this script and the current command."""
    path = places.configured_hooks / hook
    if not path.is_file() or path.read_bytes() != script:
        return False
    return _format_section(hook) in _config_path(places).read_text(errors="replace")


def write_hooks(places: Places, scripts: Mapping[str, bytes]) -> tuple[str, ...]:
    """Let git run these scripts, by hook, and return the hooks that changed. Other vmrag hooks are
    kept.

    The files are readable for everyone who can read git's configuration, because git fails on an
    include that it cannot read.
    """
    is_included = _INCLUDE[1] in configuration.read_config_values(places, _INCLUDE[0])
    existing = list_configured_hooks(places)
    changed = [hook for hook in scripts if hook not in existing or not is_current(places, hook, scripts[hook])]
    if changed:
        folder = places.configured_hooks
        mode = (places.common / "config").stat().st_mode & 0o777
        if not folder.exists():
            folder.mkdir()
            folder.chmod(places.common.stat().st_mode & 0o7777)
        for hook in changed:
            write_atomically(folder / hook, scripts[hook], mode=mode)
        _write_config(places, {*existing, *scripts}, mode)
    if not is_included:
        configuration.add_value(places, *_INCLUDE)
    return tuple(changed) if is_included else tuple(scripts)


def remove_hooks(places: Places, hooks: Collection[str] = HOOKS) -> tuple[str, ...]:
    """Remove hooks from git's configuration, and return those that existed."""
    existing = list_configured_hooks(places)
    if remaining := set(existing) - set(hooks):
        _write_config(places, remaining, _config_path(places).stat().st_mode & 0o777)
        for hook in hooks:
            (places.configured_hooks / hook).unlink(missing_ok=True)
    elif places.configured_hooks.is_dir():
        configuration.remove_value(places, *_INCLUDE)
        for path in places.configured_hooks.iterdir():
            path.unlink()
        places.configured_hooks.rmdir()
    return tuple(hook for hook in existing if hook in hooks)


def _config_path(places: Places) -> Path:
    return places.configured_hooks / "config"


def _write_config(places: Places, hooks: Collection[str], mode: int) -> None:
    write_atomically(_config_path(places), _format_config(hooks), mode=mode)
    configuration.clear_cache(places)


def rebuild_config(path: Path) -> None:
    """Rewrite the file that git includes, for the hooks whose scripts are next to it.

    No git is started, because git does not work while that file is damaged.
    """
    hooks = [hook for hook in HOOKS if (path.parent / hook).is_file()]
    write_atomically(path, _format_config(hooks), mode=(path.parent.parent / "config").stat().st_mode & 0o777)


def _format_config(hooks: Collection[str]) -> bytes:
    return "".join(_format_section(hook) for hook in HOOKS if hook in hooks).encode()


def _format_section(hook: str) -> str:
    command = _COMMAND.replace("@HOOK@", hook).replace("\\", "\\\\").replace('"', '\\"')
    return _SECTION.format(name=_NAME.format(hook), hook=hook, command=command)
