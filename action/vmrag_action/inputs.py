"""The inputs of the Action.

Each is read when it is needed, because a step gets only those that `action.yml` maps for it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, cast

from vmrag_action.runner import read_input
from vmrag_link import env
from vmrag_link.errors import UsageInvalid
from vmrag_link.git.refs import BRANCHES, COMMIT_NAME
from vmrag_link.pin_values import find_remote_flaw

Mode = Literal["repair", "update", "sync", "verify", "check", "link", "report"]
Caching = Literal["auto", "true", "false"]
FailOn = Literal["error", "information", "never"]

_TOKEN = "INPUT_TOKEN"  # noqa: S105  a name
_taken_tokens: list[str] = []
"""The token, after `take_token` has removed it from the environment."""

COMPLETED = "workflow_run"
"""The event of a job that runs after another workflow."""

MODES: tuple[Mode, ...] = ("repair", "update", "sync", "verify", "check", "link", "report")


def read_modes() -> tuple[Mode, ...]:
    """Return the modes in the order in which they run.

    `check` includes `sync`, because it needs the index.
    """
    names = [name.strip() for name in (read_input("mode") or "sync").split(",")]
    if unknown := [name for name in names if name not in MODES]:
        raise _refuse_input("mode", f"one or more of {', '.join(MODES)}, separated by commas", unknown[0])
    if "check" in names:
        names.append("sync")
    return tuple(mode for mode in MODES if mode in names)


def read_directory(workspace: Path) -> Path:
    """Return the repository: `working-directory`, relative to the workspace of the job."""
    folder = workspace / (read_input("working-directory") or ".")
    if not folder.is_dir():
        raise UsageInvalid(
            f"no such working-directory: {folder}.",
            hint="put 'uses: actions/checkout' before this step",
        )
    return folder


def take_token() -> str:
    """Remove the token from the environment, and return it. Later calls also return it.

    No child process inherits it, because some read untrusted files. git gets what it needs from
    `git_access.build_git_environment`.
    """
    if secret := read_input("token"):
        env.remove_variables([_TOKEN])
        _taken_tokens[:] = [secret]
    return "".join(_taken_tokens)


def read_remote() -> str:
    """Return the remote of the knowledge base; empty for that of the pin."""
    value = read_input("remote")
    if value and (flaw := find_remote_flaw(value)):
        raise UsageInvalid(f"the input remote {flaw}", hint="set the input 'remote: git:'")
    return value


def read_branch() -> str:
    """Return the branch that `update` updates; empty if the event selects the branches."""
    return read_input("branch").removeprefix(BRANCHES)


def read_caching() -> Caching:
    return cast("Caching", _read_choice("enable-cache", ("auto", "true", "false"), "auto"))


def wants_cache_saved() -> bool:
    return _read_boolean("save-cache", "true")


def wants_chroma() -> bool:
    """Return whether the workflow also wants Chroma's store."""
    return _read_boolean("chroma", "false")


def read_fail_on() -> FailOn:
    return cast("FailOn", _read_choice("fail-on", ("error", "information", "never"), "error"))


def list_repair_branches() -> tuple[str, ...]:
    """Return the branches to which `repair` can push; empty for the default branch."""
    return tuple(name.strip() for name in read_input("repair-branches").split(",") if name.strip())


def wants_pull_request() -> bool:
    """Return whether a repair becomes a pull request if a branch refuses the push."""
    return _read_boolean("pull-request", "false")


def wants_comment() -> bool:
    """Return whether a report also becomes a comment on the pull request."""
    return _read_boolean("comment", "false")


def is_comment_job(event: str) -> bool:
    """Return whether this job only writes a comment, about the report of another job.

    Raises `UsageInvalid` for modes that cannot be combined with a comment.
    """
    if not wants_comment():
        return False
    is_comment_only = event == COMPLETED
    if "report" not in read_modes() or (is_comment_only and len(read_modes()) > 1):
        modes = "report alone" if is_comment_only else "report"
        raise _refuse_input("mode", f"{modes}, with comment: true", read_input("mode") or "sync")
    return is_comment_only


def read_result_folders(workspace: Path) -> tuple[str, ...] | None:
    """Return the path of the folder for results, in parts from the workspace on; None if the
    workflow wants none.

    Raises `UsageInvalid` for a folder outside the workspace.
    """
    value = read_input("results-path")
    if not value:
        return None
    path = Path(os.path.relpath(os.path.abspath(workspace / value), os.path.abspath(workspace)))  # noqa: PTH100  links stay
    if path.parts[:1] == ("..",):
        raise _refuse_input("results-path", "a folder in the workspace", value)
    return path.parts


def read_branch_head() -> str:
    """Return the commit at which the step `repair` found or left its branch; empty if it did not
    run.
    """
    value = read_input("branch-head")
    return value if re.fullmatch(COMMIT_NAME, value) else ""


def count_earlier_findings() -> int:
    """Return the number of findings of earlier steps, which `action.yml` passes on."""
    value = read_input("earlier-findings")
    return int(value) if value.isascii() and value.isdigit() else 0


def _read_choice(name: str, choices: tuple[str, ...], default: str) -> str:
    value = read_input(name) or default
    if value not in choices:
        raise _refuse_input(name, " or ".join(choices), value)
    return value


def _refuse_input(name: str, expected: str, value: str) -> UsageInvalid:
    return UsageInvalid(f"the input {name} must be {expected}; found {value[:80]!r}.", hint=f"set the input '{name}'")


def _read_boolean(name: str, default: str) -> bool:
    """Read a boolean of YAML 1.2. Other texts, such as `yes`, are refused."""
    return _read_choice(name, ("true", "false"), default) == "true"
