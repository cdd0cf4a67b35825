"""The only module that talks to GitHub's runner, with `core` of actions-toolkit.

Each step gets a `Runner`, for its log, outputs and summary, and a `WorkflowJob` with the facts
about the job. This module adds the job summary, problem matchers, masks of secrets with several
lines, the limit of annotations, and a filter that keeps the runner from taking untrusted text as
commands.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

from vmrag_link import markdown_text, terminal_text
from vmrag_link.errors import UsageInvalid
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin_values import REVISION
from vmrag_link.progress import QUIET, Task
from vmrag_link.terminal_text import cut_text

# `core` imports this for OpenID tokens, which no step asks for; it would import requests, which
# takes 0.1 s a step.
_OIDC = ModuleType("actions_toolkit.oidc_utils")
vars(_OIDC)["OidcClient"] = None
sys.modules.setdefault(_OIDC.__name__, _OIDC)

from actions_toolkit import core  # noqa: E402
from actions_toolkit.command import issue_command  # noqa: E402

MAX_ANNOTATIONS = 10
"""Maximum number of annotations of a level in a step. The runner drops the others without a
message.
"""

_MAX_ANNOTATION_CHARACTERS = 4096
"""Maximum length of a message and its hint. The runner cuts longer texts at the end."""
_MAX_HINT_CHARACTERS = 1024
_MAX_TITLE_CHARACTERS = 255

MATCHERS = Path(__file__).with_name("problems.json")

Level = Literal["error", "warning", "notice"]

_BOOLEAN = r"true|false"
_PATH = r"[^\x00-\x1f\x7f]{1,4096}"
OUTPUTS: Mapping[str, str] = {
    "in-sync": _BOOLEAN,
    "revision": REVISION,
    "fingerprint": r"[0-9a-f]{64}",
    "index-path": _PATH,
    "chroma-path": _PATH,
    "cache-hit": _BOOLEAN,
    "vmrag-version": r"[0-9A-Za-z.+-]{1,64}",
    "findings": r"[0-9]{1,9}",
    "report-path": _PATH,
    "documents-changed": r"[0-9]{1,9}",
    "queries-changed": r"[0-9]{1,9}",
    "repaired": _BOOLEAN,
    "repair-branch": r"vmrag/repair-[0-9a-f]{8}",
    "updated": r"[0-9]{1,9}",
    "linked": r"[0-9]{1,9}",
    # of one step for the next ones
    "branch-head": COMMIT_NAME,
    "repair": _BOOLEAN,
    "sync": _BOOLEAN,
    "verify": _BOOLEAN,
    "check": _BOOLEAN,
    "update": _BOOLEAN,
    "link": _BOOLEAN,
    "report": _BOOLEAN,
    "comment": _BOOLEAN,
    "hand-over": _BOOLEAN,
    "comment-path": _PATH,
    "restore": _BOOLEAN,
    "save": _BOOLEAN,
    "save-packages": _BOOLEAN,
    "packed": _BOOLEAN,
    "cache-path": _PATH,
    "cache-key": r"[A-Za-z0-9_.-]{1,512}",
    "restore-keys": r"[A-Za-z0-9_.-]{1,512}(\n[A-Za-z0-9_.-]{1,512}){0,9}",
}
"""The form of each output. Other values are refused."""


class SourceLine(NamedTuple):
    """A line of a file in the repository, at which a message is shown."""

    file: str
    line: int = 1


PIN = SourceLine(PIN_NAME)


def read_input(name: str) -> str:
    """Return an input without blanks around it; empty if it is not mapped or not set.

    Shells do not keep a variable with a hyphen in its name.
    """
    return str(core.get_input(name.replace("-", "_")))


class WorkflowJob(NamedTuple):
    """The runner's information about itself and the job."""

    temp: Path
    workspace: Path
    event: str
    ref: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> WorkflowJob:
        """Return the job of this process.

        Raises `UsageInvalid` outside a job.
        """
        if not environ.get("RUNNER_TEMP"):
            raise UsageInvalid(
                "this step only works in a job of GitHub Actions.", hint="run 'vmrag --help' to list the commands"
            )
        return cls(
            Path(environ["RUNNER_TEMP"]),
            Path(environ.get("GITHUB_WORKSPACE") or "."),
            environ.get("GITHUB_EVENT_NAME", ""),
            environ.get("GITHUB_REF", ""),
        )


class Runner:
    """The log, the outputs and the summary of one step. It is also a `Progress`."""

    def __init__(self) -> None:
        self._annotations = {"error": 0, "warning": 0, "notice": 0}

    # -- the log -----------------------------------------------------------------------------------

    def log_line(self, text: str) -> None:
        """Log one line, which the runner never takes as a command."""
        core.info(terminal_text.escape_commands(terminal_text.escape_line(text)))
        sys.stdout.flush()  # before the output of a child process

    note = log_line

    def task(self, description: str, total: int) -> contextlib.AbstractContextManager[Task]:
        return QUIET.task(description, total)

    @contextlib.contextmanager
    def group(self, name: str) -> Iterator[None]:
        """Fold the output of the block."""
        core.start_group(terminal_text.escape_line(name))
        try:
            yield
        finally:
            core.end_group()

    def annotate(
        self, level: Level, message: str, *, hint: str = "", title: str = "vmrag", at: SourceLine | None = None
    ) -> None:
        """Show a message and its hint at a line of a file, or at the job.

        It is only logged if the step has as many annotations as the runner shows, or if an earlier
        step showed it.
        """
        hint_line = f"\n{_fit_text(hint, _MAX_HINT_CHARACTERS)}" if hint else ""
        text = _fit_text(message, _MAX_ANNOTATION_CHARACTERS - len(hint_line)) + hint_line
        if self._annotations[level] >= MAX_ANNOTATIONS or _shown_before(f"{level} {title} {at} {text}"):
            self.log_line(f"{level}: {text}")
            return
        self._annotations[level] += 1
        position = {"file": at.file, "line": str(at.line)} if at else {}
        issue_command(
            level, {"title": cut_text(terminal_text.escape_line(title), _MAX_TITLE_CHARACTERS), **position}, text
        )

    # -- outputs and summary -----------------------------------------------------------------------

    def set_output(self, name: str, value: str | bool | int) -> None:
        """Set an output of the step.

        Raises `ValueError` for a value that does not have the form of the output.
        """
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not re.fullmatch(OUTPUTS[name], text):
            raise ValueError(f"output {name}: {text[:80]!r}")
        core.set_output(name, text)

    def export_variables(self, variables: Mapping[str, str]) -> None:
        """Set variables for this step and later steps of the job. They must not be secrets."""
        for name, value in variables.items():
            core.export_variable(name, value)

    def add_path(self, folder: Path) -> None:
        core.add_path(str(folder))

    def mask_secret(self, secret: str) -> None:
        """Hide a secret in the log.

        The runner compares lines, so each line becomes a secret.
        """
        for line in dict.fromkeys(secret.splitlines()):
            if line.strip():
                core.set_secret(line)

    def count_free_annotations(self, level: Level) -> int:
        """Return how many more annotations of a level this step can show."""
        return MAX_ANNOTATIONS - self._annotations[level]

    def match_problems(self) -> None:
        """Let the runner annotate the output of `vmrag verify` and `vmrag check` in later steps."""
        issue_command("add-matcher", {}, str(MATCHERS))

    def append_summary(self, markdown: str, environ: Mapping[str, str] = os.environ) -> None:
        """Append to the summary of the step. `markdown_text` must have escaped the text.

        GitHub drops the whole summary of a step that exceeds its limit. If a part does not fit, a
        sentence refers to the log.
        """
        if path := environ.get("GITHUB_STEP_SUMMARY"):
            with Path(path).open("a", encoding="utf-8") as file:
                room = markdown_text.MAX_BYTES - os.fstat(file.fileno()).st_size
                file.write(markdown if len(markdown.encode()) <= room else _NO_ROOM)


_NO_ROOM = "\nMore results are in the log.\n"


def _fit_text(text: str, max_characters: int) -> str:
    """Return at most `max_characters`, counted after escaping."""
    escaped = terminal_text.escape_commands(terminal_text.escape_controls(text[: max_characters + 1]))
    return cut_text(escaped, max_characters)


def _shown_before(annotation: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a step of this job has shown the same annotation, and record it as shown.

    For example, `repair` and `verify` report the same pin.
    """
    if not (temp := environ.get("RUNNER_TEMP")):
        return False
    path = Path(temp) / "vmrag-annotations"
    digest = sha256(annotation.encode()).hexdigest()
    if path.is_file() and digest in path.read_text(encoding="ascii").split():
        return True
    with path.open("a", encoding="ascii") as file:
        file.write(f"{digest}\n")
    return False
