"""A fake of GitHub's runner: it runs the steps of a composite action as the runner documents
it.

Each step gets fresh files for its outputs, variables, paths and summary; only `env:` maps the
inputs; a script runs under `bash --noprofile --norc -eo pipefail`; conditions, `continue-on-error`,
outputs and masks apply. It evaluates the expressions that `action.yml` uses, and fails for the
rest. Functions do the work of other actions.

It is not the runner: jobs, containers and services are missing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx  # noqa: F401  a fork of this process would import it for each step
import yaml
from packaging.requirements import Requirement

from tests.support import cli
from tests.support.checkout import TOKEN
from vmrag_action import install, packages
from vmrag_action.__main__ import main
from vmrag_link.ops.report import html  # noqa: F401  as httpx

ACTION = Path(__file__).parents[2] / "action" / "action.yml"

PINNED = re.compile(r"([\w.-]+/[\w./-]+)@[0-9a-f]{40}")
OURS = re.compile(
    r"""
    ("\$PYTHON"\ -I\ "\$GITHUB_ACTION_PATH/vmrag_action/install\.py"
    |"\$RUNNER_TEMP/vmrag-action/venv/bin/python"\ -I\ -m\ vmrag_action)
    \ (\w+)""",
    re.VERBOSE,
)
COMMAND = re.compile(r"^\s*::([a-z-]+)(?: (.*?))?::(.*)$", re.DOTALL)
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""Command of a step with `shell: bash`."""

NOT_INHERITED = ("GITHUB_", "INPUT_", "RUNNER_", "VMRAG")


@dataclass
class Step:
    """Result of a step.

    `conclusion`: the result after `continue-on-error`.
    """

    name: str
    outcome: str = "skipped"
    conclusion: str = "skipped"
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    summary: str = ""


@dataclass
class Annotation:
    level: str
    message: str
    title: str = ""
    file: str = ""
    line: str = ""


@dataclass
class Finished:
    """Result of a run of the action.

    `masks`: texts that the log must not show.
    """

    steps: list[Step]
    outputs: dict[str, str]
    variables: dict[str, str]
    paths: list[str]
    masks: list[str]
    matchers: list[str]
    annotations: list[Annotation]

    @property
    def passed(self) -> bool:
        return all(step.conclusion != "failure" for step in self.steps)

    @property
    def log(self) -> str:
        return "\n".join(step.log for step in self.steps)

    @property
    def summary(self) -> str:
        return "".join(step.summary for step in self.steps)

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    def said(self, level: str) -> list[str]:
        return [annotation.message for annotation in self.annotations if annotation.level == level]


Other = Callable[[Mapping[str, str]], dict[str, str]]
"""Function that replaces another action: it gets the inputs and returns outputs, or raises
`ActionFailed`.
"""


class ActionFailed(Exception):
    pass


@dataclass
class Runner:
    """One job on one machine. `environ`: what GitHub tells it; `others`: actions by name; `forks`:
    our own steps run in forks of this process, which need not import what a new one would.
    """

    temp: Path
    workspace: Path
    environ: Mapping[str, str]
    others: Mapping[str, Other]
    token: str = TOKEN
    forks: bool = False

    def run(self, action: Path, **inputs: str) -> Finished:
        """`inputs` with underscores for hyphens, as a workflow's `with:`."""
        return _Run(self, action, {name.replace("_", "-"): value for name, value in inputs.items()}).finish()


class _Run:
    def __init__(self, runner: Runner, action: Path, given: Mapping[str, str]) -> None:
        self.runner, self.action = runner, action
        self.definition = yaml.safe_load(action.read_text())
        self.failed = False
        unknown = given.keys() - self.definition["inputs"].keys()
        assert not unknown, f"{action} has no input {unknown}"
        github = {"token": runner.token}
        self.context: dict[str, Any] = {"github": github, "inputs": {}, "steps": {}}
        self.context["inputs"] = {
            name: given.get(name, self._text(format_value(value.get("default", ""))))
            for name, value in self.definition["inputs"].items()
        }
        self.finished = Finished([], {}, {}, [], [], [], [])

    def finish(self) -> Finished:
        for step in self.definition["runs"]["steps"]:
            self._step(step)
        for name, step in self.definition["outputs"].items():
            self.finished.outputs[name] = self._text(step["value"])
        return self.finished

    # -- steps

    def _step(self, definition: Mapping[str, Any]) -> None:
        step = Step(definition.get("id") or definition["name"])
        self.finished.steps.append(step)
        self.context["steps"][step.name] = {"outputs": step.outputs, "outcome": "skipped", "conclusion": "skipped"}
        if evaluate_condition(definition.get("if", "success()"), self.context, failed=self.failed):
            ok = self._use(definition, step) if "uses" in definition else self._script(definition, step)
            step.outcome = "success" if ok else "failure"
            step.conclusion = "success" if ok or definition.get("continue-on-error") else "failure"
            self.failed = self.failed or step.conclusion == "failure"
        self.context["steps"][step.name] |= {"outcome": step.outcome, "conclusion": step.conclusion}

    def _use(self, definition: Mapping[str, Any], step: Step) -> bool:
        named = PINNED.fullmatch(definition["uses"])
        assert named, f"{definition['uses']} is not pinned by its SHA"
        given = {name: self._text(format_value(value)) for name, value in definition.get("with", {}).items()}
        try:
            step.outputs.update(self.runner.others[named[1]](given))
        except ActionFailed as error:
            step.log = str(error)
            return False
        return True

    def _script(self, definition: Mapping[str, Any], step: Step) -> bool:
        assert definition["shell"] == "bash"
        assert "${{" not in definition["run"], "a value of an expression in a script is code"
        folder = self.runner.temp / "_runner_file_commands" / secrets.token_hex(8)
        folder.mkdir(parents=True)
        files = {name: folder / name.lower() for name in ("OUTPUT", "ENV", "PATH", "STATE", "STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        environ = self._environ(definition) | {f"GITHUB_{name}": str(file) for name, file in files.items()}
        ours = OURS.fullmatch(definition["run"].strip()) if self.runner.forks and self.action == ACTION else None
        if ours:
            code, step.log = self._forked(ours, environ)
        else:
            script = folder / "script.sh"
            script.write_text(definition["run"])
            result = run_logged([*BASH, script], folder=self.runner.workspace, environ=environ)
            code, step.log = result.returncode, result.stdout
        step.summary = files["STEP_SUMMARY"].read_text()
        step.outputs.update(read_pairs(files["OUTPUT"].read_text()))
        self.finished.variables.update(read_pairs(files["ENV"].read_text()))
        self.finished.paths[:0] = reversed(files["PATH"].read_text().splitlines())
        self._obey(step.log)
        return code == 0

    def _forked(self, line: re.Match[str], environ: dict[str, str]) -> tuple[int, str]:
        def call() -> int:
            os.dup2(1, 2)
            if line[1].startswith('"$PYTHON"'):
                return install.main([line[2]])
            sys.executable = f"{environ['RUNNER_TEMP']}/vmrag-action/venv/bin/python"
            return main([line[2]])

        result = cli.run_forked(call, self.runner.workspace, environ=environ)
        return result.code, result.out

    def _environ(self, definition: Mapping[str, Any]) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
        path = os.pathsep.join([*self.finished.paths, inherited["PATH"]])
        mapped = {name: self._text(format_value(value)) for name, value in definition.get("env", {}).items()}
        runner_environ = {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(self.action.parent),
            "GITHUB_WORKSPACE": str(self.runner.workspace),
            "RUNNER_TEMP": str(self.runner.temp),
            "RUNNER_OS": "macOS" if sys.platform == "darwin" else "Linux",
            "RUNNER_ARCH": "X64",
            "RUNNER_ENVIRONMENT": "github-hosted",
            "GITHUB_RUN_ID": "1",
            "GITHUB_RUN_ATTEMPT": "1",
        }
        return (
            inherited | runner_environ | dict(self.runner.environ) | self.finished.variables | {"PATH": path} | mapped
        )

    def _obey(self, log: str) -> None:
        """The commands in a step's log, as the runner reads them."""
        stopped = ""
        for line in log.splitlines():
            assert "##[" not in line.replace("##[\\", ""), line
            match = COMMAND.match(line)
            if match and stopped:
                stopped = "" if match[1] == stopped else stopped
                continue
            if stopped or line.strip() == f"::{stopped}::":
                continue
            if not match:
                continue
            name, message = match[1], _unescaped(match[3])
            options = dict(part.split("=", 1) for part in (match[2] or "").split(",") if part)
            options = {key: _unescaped(value) for key, value in options.items()}
            match name:
                case "add-mask":
                    self.finished.masks.append(message)
                case "add-matcher":
                    self.finished.matchers.append(message)
                case "stop-commands":
                    stopped = message
                case "error" | "warning" | "notice":
                    self.finished.annotations.append(Annotation(name, message, **options))
                case "group" | "endgroup":
                    pass
                case _:
                    raise AssertionError(f"a step gave the command {line!r}")

    def _text(self, text: str) -> str:
        return fill_expressions(text, self.context, failed=self.failed)


def run_logged(
    command: Sequence[str | Path], *, folder: str | Path, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program like a runner: without input, and with both streams in its log."""
    return subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _unescaped(text: str) -> str:
    for code, sign in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, sign)
    return text


def read_pairs(text: str) -> dict[str, str]:
    """`name=value`, or `name<<DELIMITER`, lines, `DELIMITER`."""
    result: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, delimiter = line.split("<<", 1)
        assert len(delimiter) > 20, "a delimiter that can be guessed"
        value = []
        for item in lines:
            if item == delimiter:
                break
            value.append(item)
        else:
            raise AssertionError(f"{name} has no end")
        result[name] = "\n".join(value)
    return result


# -- expressions -----------------------------------------------------------------------------------


def fill_expressions(text: str, context: Mapping[str, Any], *, failed: bool = False) -> str:
    """A text with the values of its expressions."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: format_value(evaluate(match[1], context, failed=failed)), text)


def evaluate_condition(condition: str, context: Mapping[str, Any], *, failed: bool = False) -> bool:
    """Return whether the condition of `if:` lets its step or job run."""
    text = condition.strip().removeprefix("${{").removesuffix("}}")
    if not re.search(r"\b(success|failure|always|cancelled)\(\)", text):
        text = f"success() && ({text})"
    return truthy(evaluate(text, context, failed=failed))


LEXEME = re.compile(r"\s*(?:('(?:[^']|'')*')|(&&|\|\||==|!=|[!()])|([A-Za-z_][\w.-]*))")


def evaluate(text: str, context: Mapping[str, Any], *, failed: bool) -> Any:
    """The value of an expression of texts, contexts, `!`, `==`, `!=`, `&&`, `||` and the functions
    about a job's state.
    """
    tokens: list[str] = []
    at = 0
    while text[at:].strip():
        match = LEXEME.match(text, at)
        assert match, f"an expression that this stand-in does not know: {text!r} at {at}"
        tokens.append(match[0].strip())
        at = match.end()
    value = _either(tokens, context, failed)
    assert not tokens, f"an expression that this stand-in does not know: {text!r}"
    return value


def _either(tokens: list[str], context: Mapping[str, Any], failed: bool) -> Any:
    value = _both(tokens, context, failed)
    while tokens[:1] == ["||"]:
        tokens.pop(0)
        other = _both(tokens, context, failed)
        value = value if truthy(value) else other
    return value


def _both(tokens: list[str], context: Mapping[str, Any], failed: bool) -> Any:
    value = _compared(tokens, context, failed)
    while tokens[:1] == ["&&"]:
        tokens.pop(0)
        other = _compared(tokens, context, failed)
        value = other if truthy(value) else value
    return value


def _compared(tokens: list[str], context: Mapping[str, Any], failed: bool) -> Any:
    value = _single(tokens, context, failed)
    while tokens[:1] in (["=="], ["!="]):
        equal = tokens.pop(0) == "=="
        other = _single(tokens, context, failed)
        value = (format_value(value).lower() == format_value(other).lower()) == equal
    return value


def _single(tokens: list[str], context: Mapping[str, Any], failed: bool) -> Any:
    token = tokens.pop(0)
    if token == "!":
        return not truthy(_single(tokens, context, failed))
    if token == "(":
        value = _either(tokens, context, failed)
        assert tokens.pop(0) == ")"
        return value
    if token.startswith("'"):
        return token[1:-1].replace("''", "'")
    if tokens[:2] == ["(", ")"]:
        del tokens[:2]
        return {"success": not failed, "failure": failed, "always": True, "cancelled": False}[token]
    value = context
    for name in token.split("."):
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    return value


def truthy(value: Any) -> bool:
    return value not in (False, None, "", 0)


def format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- what other actions do -------------------------------------------------------------------------


@dataclass
class CacheService:
    """Stands for actions/cache and its service: entries are folders, the newest first.

    `broken`: the service refuses, of which the program warns and fails nothing.
    """

    root: Path
    broken: bool = False
    entries: list[str] = field(default_factory=list)

    def restore(self, given: Mapping[str, str]) -> dict[str, str]:
        if self.broken:
            return {}
        expected = [given["key"], *given.get("restore-keys", "").splitlines()]
        for prefix in expected:
            for key in self.entries:
                if key.startswith(prefix):
                    shutil.copytree(self.root / key, given["path"], symlinks=True)
                    return {"cache-hit": format_value(key == given["key"]), "cache-matched-key": key}
        return {"cache-hit": "false", "cache-matched-key": ""}

    def save(self, given: Mapping[str, str]) -> dict[str, str]:
        if self.broken:
            return {}
        assert given["key"] not in self.entries, "an entry cannot be written twice"
        shutil.copytree(given["path"], self.root / given["key"], symlinks=True)
        self.entries.insert(0, given["key"])
        return {}

    @property
    def actions(self) -> dict[str, Other]:
        return {"actions/cache/restore": self.restore, "actions/cache/save": self.save}


def setup_python(given: Mapping[str, str]) -> dict[str, str]:
    """Stands for actions/setup-python: the Python that runs the tests, on no PATH."""
    assert given["update-environment"] == "false"
    return {"python-version": given["python-version"], "python-path": sys.executable}


def restore_packages(temp: Path, inputs: Mapping[str, str], event: str = "") -> None:
    """Restore the packages of a mode from the tests' environment, as the cache does, and no others.

    Restores nothing for invalid inputs, which the step reports.
    """
    environ = {"RUNNER_TEMP": str(temp), "GITHUB_EVENT_NAME": event} | {
        f"INPUT_{name.upper()}": value for name, value in inputs.items()
    }
    with contextlib.suppress(install.InstallRefused):
        chosen, shelf = install.read_request(environ), install.packages_folder(environ)
        shelf.mkdir(parents=True)
        for name in packages.list_package_names(chosen.extras):
            for file in _files(name):
                (shelf / file.name).symlink_to(file)
        install.mark_packages(shelf, chosen)


@functools.cache
def _files(name: str) -> list[Path]:
    """List the top-level files of a package; nothing if this Python does not need it."""
    entries = [entry.partition("\\")[0] for entry in packages.read_locked_packages()[name].entries]
    markers = [Requirement(entry).marker for entry in entries]
    if not any(marker is None or marker.evaluate() for marker in markers):
        return []
    distribution = importlib.metadata.distribution(name)
    tops = {path.parts[0] for path in distribution.files or [] if path.parts[0] != ".."}
    return [Path(str(distribution.locate_file(top))) for top in sorted(tops - {"__pycache__"})]
