"""Whole jobs of the workflows in docs/, run by a fake of GitHub: its git host, which knows the
permissions of the job's token, its API, and its runner.

`actions_runner` runs the Action's steps. The other steps of a job run unchanged; downloads from the
package index are omitted, because the environment of the tests has the packages.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support import actions_programs, local_http, travel
from tests.support.actions_programs import CacheApi, CacheHandler
from tests.support.actions_runner import (
    ACTION,
    BASH,
    NOT_INHERITED,
    CacheService,
    Finished,
    Runner,
    evaluate_condition,
    fill_expressions,
    restore_packages,
    run_logged,
    setup_python,
)
from tests.support.checkout import TOKEN, Checkout, basic
from tests.support.events import OWN, Job
from tests.support.github_comments import CommentsApi
from tests.support.github_rest import serving
from tests.support.hosted import Ci
from tests.support.people import World
from tests.support.recipes import WORKFLOWS

DOCS = Path(__file__).parents[2] / "docs"
DOWNLOADS = re.compile(r"(?m)^ *python -m pip install .*\n")
PYTHON = ".".join(map(str, sys.version_info[:2]))


@cache
def recipes() -> dict[str, dict[str, Any]]:
    """Return the workflows of ci/github/ and the one in docs/ci.md by their names."""
    shown = re.findall(r"(?ms)^```yaml\n(name: .*?)^```", (DOCS / "ci.md").read_text())
    texts = [*shown, *(path.read_text() for path in sorted(WORKFLOWS.glob("*.yml")))]
    read = [yaml.load(text, _Loader) for text in texts]
    return {workflow["name"]: workflow for workflow in read}


class _Loader(yaml.SafeLoader):
    """`on` is a name, as GitHub reads it."""


_Loader.yaml_implicit_resolvers = {
    sign: [
        resolver for resolver in yaml_implicit_resolver if resolver[0] != "tag:yaml.org,2002:bool" or sign not in "oO"
    ]
    for sign, yaml_implicit_resolver in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True)
class Event:
    """Event for which GitHub starts a workflow."""

    name: str
    payload: Any
    sha: str
    ref: str = "refs/heads/main"

    @property
    def of_fork(self) -> bool:
        head = self.payload.get("pull_request", {}).get("head", {}).get("repo")
        return self.name == "pull_request" and head is not None and head["full_name"] != OWN["full_name"]


@dataclass
class Ran:
    """Result of a job.

    `ours`: the result of the Action; None if its step, or the job, did not run.
    """

    ours: Finished | None = None
    scripts: list[subprocess.CompletedProcess[str]] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return (self.ours is None or self.ours.passed) and not any(script.returncode for script in self.scripts)


@dataclass
class Access:
    """Permissions of the job's token on the host.

    `forks`: whether the public may read the fork.
    """

    writes: bool = False
    forks: bool = True
    requests: list[tuple[str, str]] = field(default_factory=list)

    def gate(self, path: str, given: str) -> int:
        """Answer like GitHub: a private repository is missing for clients that may not see it."""
        self.requests.append((path, given))
        is_authorized = given.lower() == f"basic {basic(TOKEN)}".lower()
        if not path.startswith(f"/{OWN['full_name']}/"):
            return 0 if self.forks and "receive-pack" not in path else 404 if is_authorized else 401
        return 401 if not is_authorized else 403 if "receive-pack" in path and not self.writes else 0


@dataclass(kw_only=True)
class GitHub(Ci):
    """A hosted repository with its fork, its API and its caches. `programs`: the folder with the
    programs of actions; None: what stands for them. `read_only`: no workflow may write.
    """

    url: str
    access: Access
    api: CommentsApi
    caches: CacheApi
    programs: Path | None = None
    read_only: bool = False

    def job(self, recipe: str, event: Event, *, given: Mapping[str, str] | None = None, besides: str = "") -> Ran:
        """Run the job of a recipe.

        `given`: further inputs of the Action; `besides`: an event that the recipe does not listen
        to, but a modified copy of it does.
        """
        workflow = recipes()[recipe]
        listens = workflow["on"]
        assert event.name in ([listens] if isinstance(listens, str) else [*listens, besides])
        [job] = workflow["jobs"].values()
        return _Job(self, job, event, dict(given or {})).run()

    @property
    def saved(self) -> list[str]:
        return self.caches.entries if self.programs else self.cache.entries


class _Job:
    def __init__(self, github: GitHub, job: Any, event: Event, given: dict[str, str]) -> None:
        self.github, self.definition, self.event, self.given = github, job, event, given
        github.jobs += 1
        machine = github.folder / "runner"  # always there, as on GitHub: an entry of the cache belongs to its path
        shutil.rmtree(machine, ignore_errors=True)
        self.temp, github.workspace = machine / "temp", machine / "workspace"
        self.temp.mkdir(parents=True)
        github.workspace.mkdir()
        more = {
            "GITHUB_RUN_ID": str(github.jobs),
            "GITHUB_SERVER_URL": github.url,
            **github.api.environ,
        }
        self.environ = Job(machine, event.name, event.payload, sha=event.sha, ref=event.ref, **more).environ
        fields = {"token": TOKEN, "event": event.payload, "event_name": event.name, "sha": event.sha, "ref": event.ref}
        inputs = event.payload.get("inputs") or {}
        self.context: dict[str, Any] = {"github": fields, "steps": {}, "inputs": inputs}
        self.ran = Ran()
        self.paths: list[str] = []

    def run(self) -> Ran:
        if not evaluate_condition(str(self.definition.get("if", "success()")), self.context):
            return self.ran
        granted = dict(self.definition["permissions"])
        if self.given.get("comment") == "true":
            granted["pull-requests"] = "write"
        if self.event.of_fork or self.github.read_only:  # of a fork, for any workflow
            granted = dict.fromkeys(granted, "read")
        self.github.access.writes = granted.get("contents") == "write"
        self.github.api.may_write = granted.get("pull-requests") == "write"
        for step in self.definition["steps"]:
            if evaluate_condition(str(step.get("if", "success()")), self.context, failed=not self.ran.passed):
                self._step(step)
        if self.ran.ours:
            self.github.look_for_secrets(self.ran.ours, TOKEN)
        return self.ran

    def _step(self, definition: Mapping[str, Any]) -> None:
        with_ = {
            name: fill_expressions(_text(value), self.context) for name, value in definition.get("with", {}).items()
        }
        match definition.get("uses", "").partition("@")[0]:
            case "":
                self._script(definition)
            case "actions/checkout":
                self._checkout(with_)
            case "actions/setup-python":
                self.paths.insert(0, str(Path(sys.executable).parent))  # the job's own, with what it installs
            case "actions/upload-artifact":
                self.ran.kept.append(Path(with_["path"]))
            case "vmrag/vmrag-link":
                self._action(definition, with_)
            case other:
                raise AssertionError(f"a step of {other}, which nothing stands for")

    def _action(self, definition: Mapping[str, Any], with_: Mapping[str, str]) -> None:
        inputs = {name.replace("-", "_"): value for name, value in {**with_, **self.given}.items()}
        restore_packages(self.temp, inputs, self.event.name)
        github = self.github
        others = {**github.cache.actions, "actions/setup-python": setup_python}
        if github.programs:
            inputs.setdefault("python_version", PYTHON)
            names = ("actions/cache/restore", "actions/cache/save", "actions/setup-python")
            others = {name: self._program(name) for name in names}
        others["actions/upload-artifact"] = github._upload
        forks = github.forks and not github.programs
        runner = Runner(self.temp, github.workspace, self.environ, others, token=TOKEN, forks=forks)
        self.ran.ours = result = runner.run(ACTION, **inputs)
        print(result.log)
        self.paths[:0] = result.paths
        if name := definition.get("id"):
            self.context["steps"][name] = {"outputs": result.outputs}

    def _program(self, name: str) -> Any:
        root = self.github.programs
        assert root
        environ = self._of_runner | (self.github.caches.environ if "cache" in name else {})
        folder = root / name.removeprefix("actions/")
        return lambda given: actions_programs.run(folder, given, environ, TOKEN)

    @property
    def _of_runner(self) -> dict[str, str]:
        runner_environ = {"CI": "true", "GITHUB_ACTIONS": "true", "RUNNER_OS": "Linux", "RUNNER_ARCH": "X64"}
        tools = actions_programs.tool_cache(self.github.folder / "tools") if self.github.programs else ""
        places = {"GITHUB_WORKSPACE": self.github.workspace, "RUNNER_TEMP": self.temp, "RUNNER_TOOL_CACHE": tools}
        return self.environ | runner_environ | {name: str(value) for name, value in places.items()}

    def _checkout(self, with_: Mapping[str, str]) -> None:
        github, depth = self.github, int(with_.get("fetch-depth", "1"))
        if github.programs:
            self._program("actions/checkout")(with_)
            return
        ref = self.event.ref if self.event.ref.startswith("refs/") else f"refs/heads/{self.event.ref}"
        options = {"persist_credentials": with_["persist-credentials"] == "true", "fetch_depth": depth}
        checkout = Checkout(github.workspace, self.temp, github.url, TOKEN, **options)  # type: ignore[arg-type]
        checkout.run(OWN["full_name"], "" if with_.get("ref") else ref, with_.get("ref") or self.event.sha)

    def _script(self, definition: Mapping[str, Any]) -> None:
        assert "${{" not in definition["run"], "a value of an expression in a script is code"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
        step_environ = {
            name: fill_expressions(_text(value), self.context) for name, value in definition.get("env", {}).items()
        }
        variables = self.ran.ours.variables if self.ran.ours else {}
        path = os.pathsep.join([*self.paths, inherited["PATH"]])
        environ = inherited | self._of_runner | variables | {"PATH": path} | step_environ
        script = DOWNLOADS.sub("", definition["run"])
        result = run_logged([*BASH, "-c", script], folder=self.github.workspace, environ=environ)
        print(result.stdout)
        self.ran.scripts.append(result)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextlib.contextmanager
def hosting(world: World, folder: Path, programs: Path | None) -> Iterator[GitHub]:
    """GitHub over a world: `them/project` is its repository, `me/project` a fork of it."""
    place = world.top / "hosted"
    for name, repository in (("them", world.hub.top), ("me", world.top / "fork.git")):
        (place / name).mkdir(parents=True)
        (place / name / "project").symlink_to(repository)
    access = Access()
    with contextlib.ExitStack() as stack:
        host = stack.enter_context(travel.git_server(place, gate=access.gate))
        api = stack.enter_context(serving(TOKEN, CommentsApi))
        server: Any = stack.enter_context(local_http.serving(CacheHandler))
        server.api = CacheApi(folder / "archives", f"http://127.0.0.1:{server.server_address[1]}")
        yield GitHub(
            world,
            folder,
            CacheService(folder / "cache"),
            url=host.url,
            access=access,
            api=api,
            caches=server.api,
            programs=programs,
        )
