"""The Action's inputs, each read where it is needed: a step gets only those that `action.yml` maps
for it.
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
_taken: list[str] = []

COMPLETED = "workflow_run"
"""The event of a job that comes after another workflow's."""

MODES: tuple[Mode, ...] = ("repair", "update", "sync", "verify", "check", "link", "report")


def _choice(name: str, choices: tuple[str, ...], default: str) -> str:
    found = read_input(name) or default
    if found not in choices:
        raise _refusal(name, " or ".join(choices), found)
    return found


def _refusal(name: str, wanted: str, found: str) -> UsageInvalid:
    return UsageInvalid(f"The input {name} must be {wanted}; found {found[:80]!r}.", hint=f"with: {name}: …")


def _boolean(name: str, default: str) -> bool:
    """As YAML 1.2 writes them; anything else is refused, `yes` included."""
    return _choice(name, ("true", "false"), default) == "true"


def read_modes() -> tuple[Mode, ...]:
    """In the order in which they run. `check` asks the index, so it includes `sync`."""
    found = [each.strip() for each in (read_input("mode") or "sync").split(",")]
    if unknown := [each for each in found if each not in MODES]:
        raise _refusal("mode", f"one or more of {', '.join(MODES)}, separated by commas", unknown[0])
    wanted = {*found, *(["sync"] if "check" in found else [])}
    return tuple(mode for mode in MODES if mode in wanted)


def read_directory(workspace: Path) -> Path:
    """The repository: `working-directory`, which counts from the job's workspace."""
    found = workspace / (read_input("working-directory") or ".")
    if not found.is_dir():
        raise UsageInvalid(
            f"The working-directory {found} is not there.",
            hint="Let actions/checkout come first: uses: actions/checkout",
        )
    return found


def take_token() -> str:
    """It is taken out of the environment: no child inherits it, whatever strangers' files it
    reads. git gets what it needs from `token.environment`.
    """
    if found := read_input("token"):
        env.remove_variables([_TOKEN])
        _taken[:] = [found]
    return "".join(_taken)


def read_remote() -> str:
    """Where the knowledge comes from; empty: where the pin says."""
    found = read_input("remote")
    if found and (flaw := find_remote_flaw(found)):
        raise UsageInvalid(f"The input remote {flaw}", hint="with: remote: git:")
    return found


def read_branch() -> str:
    """The branch that `update` brings up to date; empty: the event says which ones."""
    return read_input("branch").removeprefix(BRANCHES)


def read_caching() -> Caching:
    return cast("Caching", _choice("enable-cache", ("auto", "true", "false"), "auto"))


def wants_cache_saved() -> bool:
    return _boolean("save-cache", "true")


def wants_chroma() -> bool:
    """Whether Chroma's store is wanted, too."""
    return _boolean("chroma", "false")


def read_fail_on() -> FailOn:
    return cast("FailOn", _choice("fail-on", ("error", "information", "never"), "error"))


def list_repair_branches() -> tuple[str, ...]:
    """The branches that `repair` may push to; none: the default branch."""
    return tuple(each.strip() for each in read_input("repair-branches").split(",") if each.strip())


def wants_pull_request() -> bool:
    """Whether a repair that a branch refuses becomes a pull request."""
    return _boolean("pull-request", "false")


def wants_comment() -> bool:
    """Whether a report becomes a comment on the pull request, too."""
    return _boolean("comment", "false")


def is_comment_job(event: str) -> bool:
    """Whether this job only writes a comment, on what another one has reported.

    Raises `UsageInvalid` for modes beside which there is no comment.
    """
    if not wants_comment():
        return False
    after = event == COMPLETED
    if "report" not in read_modes() or (after and len(read_modes()) > 1):
        raise _refusal("mode", f"report{' alone' if after else ''}, with comment: true", read_input("mode") or "sync")
    return after


def read_result_folders(workspace: Path) -> tuple[str, ...] | None:
    """Return the names of the folders, from the workspace on, that lead to the results; None if the
    workflow wants none.

    Raises `UsageInvalid` for a folder that is not in the workspace.
    """
    value = read_input("results-path")
    if not value:
        return None
    path = Path(os.path.relpath(os.path.abspath(workspace / value), os.path.abspath(workspace)))  # noqa: PTH100  links stay
    if path.parts[:1] == ("..",):
        raise _refusal("results-path", "a folder in the workspace", value)
    return path.parts


def read_branch_head() -> str:
    """The commit at which the step `repair` found or left its branch; empty where it did not."""
    found = read_input("branch-head")
    return found if re.fullmatch(COMMIT_NAME, found) else ""


def count_earlier_findings() -> int:
    """Of the step before, which `action.yml` hands over; none where it did not run."""
    found = read_input("earlier-findings")
    return int(found) if found.isascii() and found.isdigit() else 0
