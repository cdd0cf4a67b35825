"""Checks of `vmrag doctor` for the hooks, their interpreter, and the merge driver.

A `Topic` has a check, which yields findings, and a repair for each code of a finding. `chaining`
defines chained hooks, and `installer` the two ways in which git starts a hook.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_hooks import chaining, installer, routes, shims
from vmrag_hooks.hook_runs import HOOK_RUNS
from vmrag_link import __version__, hints, proc
from vmrag_link.errors import HooksRefused, quoted
from vmrag_link.file_access import read_recorded_path
from vmrag_link.git import hook_choice, hook_config, merge_driver, plumbing
from vmrag_link.git import hooks as git_hooks
from vmrag_link.git.hook_config import HOOKS, SYNCING
from vmrag_link.git.run import run_git
from vmrag_link.ops.doctor.findings import Finding, Level, Topic
from vmrag_link.paths import Places
from vmrag_link.settings import HookPlace
from vmrag_link.workspace import Workspace

_INSTALL_HINT = "run 'vmrag install' to install the hooks"
_PROBE = "import vmrag_hooks, vmrag_link; print(vmrag_link.__version__)"


def check_hooks(ws: Workspace) -> Iterator[Finding]:
    """Check the hooks.

    A repository without a pin and without shims needs none, nor does one whose user wants none.
    """
    folder = git_hooks.find_hooks_folder(ws.places)
    has_chained = any(chaining.find_chained_hook(folder, hook).exists() for hook in HOOKS)
    if installer.list_installed_hooks(ws.places, folder) or has_chained:
        install = _form_install_hint(ws.places, folder)
        chosen = hook_choice.list_chosen_hooks(ws.places)
        needed = [hook for hook in chosen if hook in SYNCING] if ws.stores_nothing else chosen
        absent = [hook for hook in needed if not _is_installed(ws.places, folder, hook)]
        yield from _report_missing(folder, absent, install)
        paths = [git_hooks.locate_shim(folder, hook) for hook in git_hooks.list_shims(folder)]
        paths += [ws.places.shims / hook for hook in git_hooks.list_started_shims(ws.places)]
        configured = [ws.places.configured_hooks / hook for hook in hook_config.list_configured_hooks(ws.places)]
        yield from _check_texts([*paths, *configured], ws.places, install)
        yield from _check_executable(folder, paths, install)
        if not hook_choice.is_active(ws.places):
            message = "the hooks act only in other worktrees; here, the next vmrag command updates the knowledge base."
            yield Finding("HOOKS_ELSEWHERE", "note", message, install, str(ws.places.top))
    elif (
        plumbing.read_pin_bytes(ws.places) is not None
        and "post-checkout" not in git_hooks.list_framework_hooks(ws.places)  # pre-commit or prek runs vmrag
    ):
        goes_to_config = routes.choose_place(ws.places, folder, ws.config.hooks.place, force=False).configured
        if not goes_to_config and (obstacle := _hooks_path_finding(ws.places, folder)):
            yield obstacle
            return
        level: Level = "warning" if hook_choice.list_chosen_hooks(ws.places) else "note"
        message = (
            "vmrag's git hooks are not installed, so the knowledge base is updated only by the next vmrag command."
        )
        yield Finding("HOOKS_NOT_INSTALLED", level, message, _INSTALL_HINT, str(folder))


def _is_installed(places: Places, folder: Path, hook: str) -> bool:
    """Return whether a hook is in the configuration or in files, executable or not, or another tool
    starts it.
    """
    return (
        hook in hook_config.list_configured_hooks(places)
        or git_hooks.is_ours(git_hooks.locate_shim(folder, hook))
        or git_hooks.runs_hook(places, folder, hook)
    )


def _form_install_hint(places: Places, folder: Path) -> str:
    """Return the hint to install the hooks again, with the options of the last time."""
    words = [hook_choice.format_install_command(places)]
    try:
        if not hook_config.list_configured_hooks(places):
            routes.find_routes(places, folder, HOOKS, force=False)
    except HooksRefused:
        words.append("--force")
    return hints.suggest_command(" ".join(words), "install the hooks")


def _hooks_path_finding(places: Places, folder: Path) -> Finding | None:
    """Return the finding if `core.hooksPath`, which husky sets, keeps git from running vmrag's
    hooks.
    """
    try:
        routes.find_routes(places, folder, HOOKS, force=False)
    except HooksRefused as refused:
        code = "HOOKS_PATH_TRACKED" if chaining.is_inside(folder, places) else "HOOKS_PATH_OUTSIDE"
        return Finding(code, "warning", refused.message, refused.hint.removesuffix(chaining.OR_FORCE), str(folder))
    if not run_git(places, "config", "--get", "core.hooksPath").stdout:
        return None
    if not folder.is_dir():
        message = f"core.hooksPath names {folder}, which does not exist, so git runs no hooks."
        return Finding("HOOKS_PATH_MISSING", "warning", message, _INSTALL_HINT, str(folder))
    clone_hooks = places.common / "hooks"
    if git_hooks.list_shims(clone_hooks):
        message = f"core.hooksPath names {folder}, so git does not run vmrag's hooks in {clone_hooks}."
        return Finding("HOOKS_BYPASSED", "warning", message, _INSTALL_HINT, str(folder))
    return None


def _report_missing(folder: Path, missing: Sequence[str], install: str) -> Iterator[Finding]:
    """Yield a finding about missing hooks.

    If the chained hook still exists, another tool, such as husky, overwrote vmrag's hook.
    """
    chained = [hook for hook in missing if chaining.find_chained_hook(folder, hook).exists()]
    replaced = []
    for hook in chained:
        try:
            chaining.refuse_second_hook(folder, hook)
        except HooksRefused as refused:
            yield Finding("HOOK_BLOCKED", "warning", refused.message, refused.hint, hook)
        else:
            replaced.append(hook)
    if replaced:
        message = f"another tool has overwritten these vmrag hooks: {', '.join(replaced)}."
        yield Finding("HOOK_REPLACED", "warning", message, install, " ".join(replaced))
    if names := [hook for hook in missing if hook not in chained]:
        message = f"these vmrag hooks are not installed: {', '.join(names)}."
        yield Finding("HOOK_MISSING", "note", message, install, " ".join(names))


def _check_texts(paths: Sequence[Path], places: Places, install: str) -> Iterator[Finding]:
    """Yield findings about hooks that another version of vmrag wrote."""
    content = {path: path.read_bytes() if path.exists() else b"" for path in paths}
    versions = {path: git_hooks.parse_shim_version(content[path]) or 0 for path in paths}
    newer = [path for path in paths if versions[path] > shims.VERSION]
    if newer:
        message = f"a newer version of vmrag-link wrote these hooks: {_list_hooks(newer)}."
        fix = f"run '{quoted(sys.executable)} -m pip install --upgrade vmrag-link' to upgrade it"
        yield Finding("HOOK_NEWER", "warning", message, fix, _join_hooks(newer))
    old = [path for path in paths if path not in newer and not _is_current(places, path, content[path])]
    if old:
        message = f"another version of vmrag-link wrote these hooks: {_list_hooks(old)}."
        yield Finding("HOOK_OUTDATED", "warning", message, install, _join_hooks(old))


def _is_current(places: Places, path: Path, content: bytes) -> bool:
    """Return whether the shim, and the configuration that starts it, are those of this version."""
    is_configured = path.parent == places.configured_hooks
    text = shims.format_shim(path.name.removesuffix(".legacy"), configured=is_configured)
    return hook_config.is_current(places, path.name, text) if is_configured else content == text


def _check_executable(folder: Path, paths: Sequence[Path], install: str) -> Iterator[Finding]:
    ignored = [path for path in paths if not os.access(path, os.X_OK)]
    if ignored:
        message = f"these hooks are not executable, so git skips them: {_list_hooks(ignored)}."
        yield Finding("HOOK_NOT_EXECUTABLE", "warning", message, install, _join_hooks(ignored))
    for hook in git_hooks.list_shims(folder):
        chained = chaining.find_chained_hook(folder, hook)
        if chained.exists() and not os.access(chained, os.X_OK):
            message = f"the {hook} hook before vmrag's is not executable, so it is skipped."
            yield Finding(
                "CHAINED_NOT_EXECUTABLE", "warning", message, f"run 'chmod +x {quoted(chained)}'", str(chained)
            )


def _join_hooks(paths: Sequence[Path]) -> str:
    return " ".join(dict.fromkeys(path.name.removesuffix(".legacy") for path in paths))


def _list_hooks(paths: Sequence[Path]) -> str:
    return _join_hooks(paths).replace(" ", ", ")


def _reinstall_hooks(ws: Workspace, finding: Finding) -> str:
    """Install the shims again, also outside the repository, where other vmrag hooks show that the
    user wanted that.
    """
    return f"installed {', '.join(_install_again(ws, finding.subject.split()).written)}."


def _install_again(ws: Workspace, hooks: Sequence[str]) -> installer.InstallReport:
    """Install the hooks at their current place.

    The settings are ignored, because they can be the problem.
    """
    place: HookPlace = "config" if hook_config.list_configured_hooks(ws.places) else "files"
    files_only = ws.stores_nothing and set(hooks) <= set(SYNCING)
    return installer.install_hooks(ws.places, hooks=hooks, force=True, place=place, files_only=files_only)


# -- the interpreter


def check_interpreter(ws: Workspace) -> Iterator[Finding]:
    """Check the interpreter, if vmrag's hooks would start it."""
    folder = git_hooks.find_hooks_folder(ws.places)
    if not installer.list_installed_hooks(ws.places, folder):
        return
    install = _form_install_hint(ws.places, folder)
    python = _recorded_interpreter(ws.places)
    if python is None:
        message = "no Python is recorded for the hooks, so they try the python3 on PATH."
        yield Finding("INTERPRETER_MISSING", "warning", message, install, str(ws.places.interpreter))
    elif not os.access(python, os.X_OK):
        message = f"the Python of the hooks, {python}, no longer exists, so they try the python3 on PATH."
        yield Finding("INTERPRETER_MISSING", "warning", message, install, python)
    elif Path(python) != Path(sys.executable):
        yield from _probe_interpreter(ws.places, python, install)


def _recorded_interpreter(places: Places) -> str | None:
    path = read_recorded_path(places.interpreter)
    return str(path) if path else None


def _find_usable_interpreter(places: Places) -> str | None:
    python = _recorded_interpreter(places)
    return python if python and os.access(python, os.X_OK) else None


def _probe_interpreter(places: Places, python: str, install: str) -> Iterator[Finding]:
    try:
        result = proc.run([python, "-P", "-c", _PROBE], cwd=places.top)
        is_working = not result.returncode
        version = result.text.strip()
        reason = " ".join(result.failure.splitlines()[-1:])
    except OSError as error:  # executable, but no program
        is_working = False
        version = ""
        reason = error.strerror or str(error)
    if not is_working:
        message = f"the Python of the hooks, {python}, cannot run them: {reason}."
        yield Finding("INTERPRETER_BROKEN", "error", message, install, python)
    elif version != __version__:
        message = f"the hooks run vmrag-link {version} ({python}); this one has version {__version__}."
        yield Finding("INTERPRETER_OTHER_VERSION", "warning", message, install, python)


def _record_interpreter(ws: Workspace, _: Finding) -> str:
    return f"the hooks start {_install_again(ws, ()).interpreter} from now on."


# -- the merge driver


def check_driver(ws: Workspace) -> Iterator[Finding]:
    """Check the merge driver, if there is a pin that it would merge."""
    if plumbing.read_pin_bytes(ws.places) is None:
        return
    section = merge_driver.read_driver(ws.places)
    install = _form_install_hint(ws.places, git_hooks.find_hooks_folder(ws.places))
    command = section.get("driver", "")
    if not section:
        message = "the merge driver of the pin is not registered, so git merges the pin line by line, with conflicts."
        yield Finding("DRIVER_MISSING", "warning", message, install, merge_driver.DRIVER)
    elif not command:
        message = "the merge driver of the pin is registered without a command, so merges of pins fail."
        yield Finding("DRIVER_INCOMPLETE", "error", message, install, merge_driver.DRIVER)
    elif not (python := _find_program(command)) or not shutil.which(python):
        message = f"the Python of the pin's merge driver no longer exists ({python or command}), so each merge of pins is a conflict."
        yield Finding("DRIVER_BROKEN", "warning", message, install, python or command)
    elif command != shims.format_driver_command(_find_usable_interpreter(ws.places) or python) or "name" not in section:
        message = "another version of vmrag-link registered the merge driver of the pin."
        yield Finding("DRIVER_OUTDATED", "warning", message, install, command)


def _find_program(command: str) -> str:
    """Return the program of a command line; an empty text if no shell would run it."""
    try:
        return next(iter(shlex.split(command.replace("%%", "%"))), "")
    except ValueError:
        return ""


def _register_driver(ws: Workspace, _: Finding) -> str:
    python = _find_usable_interpreter(ws.places) or sys.executable
    merge_driver.register_driver(ws.places, shims.format_driver_command(python))
    return f"registered it with {python}."


INSTALLED = Topic(
    "hooks",
    check_hooks,
    dict.fromkeys(("HOOK_MISSING", "HOOK_REPLACED", "HOOK_OUTDATED", "HOOK_NOT_EXECUTABLE"), _reinstall_hooks),
)
INTERPRETER = Topic(
    "hooks' interpreter",
    check_interpreter,
    dict.fromkeys(("INTERPRETER_MISSING", "INTERPRETER_BROKEN", "INTERPRETER_OTHER_VERSION"), _record_interpreter),
)
DRIVER = Topic(
    "merge driver",
    check_driver,
    dict.fromkeys(("DRIVER_MISSING", "DRIVER_INCOMPLETE", "DRIVER_BROKEN", "DRIVER_OUTDATED"), _register_driver),
)

TOPICS = (INSTALLED, HOOK_RUNS, INTERPRETER, DRIVER)
