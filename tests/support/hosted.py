"""A hosted repository, and jobs of the Action over it; each has a fresh machine.

A test module takes the fixtures with `shared, world, ci = people.shared, people.world, hosted.ci`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import events
from tests.support.actions_runner import ACTION, CacheService, Finished, Runner, restore_packages, setup_python
from tests.support.checkout import TOKEN
from tests.support.events import OWN, ZEROS, Job
from tests.support.people import User, World
from tests.support.repos import Repo


@dataclass
class Ci:
    """The hosted repository, its cache, its artifacts, and a fresh machine for each job. `forks`:
    see `Runner`.
    """

    world: World
    folder: Path
    cache: CacheService
    forks: bool = True
    jobs: int = 0
    uploads: dict[str, Path] = field(default_factory=dict)
    workspace: Path = field(default_factory=Path)

    @property
    def ada(self) -> User:
        return self.world.ada

    @property
    def tip(self) -> str:
        return self.world.hub.git("rev-parse", "main")

    def on_push(self, *, before: str = ZEROS, sha: str = "", ref: str = "refs/heads/main", **given: Any) -> Finished:
        sha = sha or self.tip
        return self.run("push", events.push(before, sha, ref=ref), sha=sha, ref=ref, **given)

    def on_pull_request(
        self, base: str, head: str, *, event: str = "pull_request", source: Any = OWN, **given: Any
    ) -> Finished:
        """GitHub's merge of both is made, where it makes one."""
        hub, payload = self.world.hub, events.pull_request(base, head, source=source)
        hub.git("update-ref", "refs/pull/7/head", head)
        if event == "pull_request_target":
            return self.run(event, payload, sha=base, ref="refs/heads/main", **given)
        tree = hub.git("rev-parse", f"{head}^{{tree}}")
        merge = hub.git("commit-tree", tree, "-p", base, "-p", head, "-m", "merge")
        hub.git("update-ref", "refs/pull/7/merge", merge)
        return self.run(event, payload, sha=merge, ref="refs/pull/7/merge", **given)

    def run(
        self,
        event: str,
        payload: Any,
        *,
        sha: str,
        ref: str,
        depth: int | None = 1,
        action: Path = ACTION,
        sparse: bool = False,
        first: Any = None,
        again: bool = False,
        environ: Mapping[str, str] | None = None,
        **inputs: str,
    ) -> Finished:
        """`again`: in the workspace of the job before. `first`: a step before ours. `environ`: more
        that the runner tells.
        """
        self.jobs += 1
        machine = self.folder / f"machine-{self.jobs}"
        temp = machine / "temp"
        temp.mkdir(parents=True)
        if not again:
            self.workspace = machine / "workspace"
            repo = events.checkout(self.world.hub.top, self.workspace, sha, depth=depth)
            if sparse:
                repo.git("sparse-checkout", "set", "--no-cone", "docs")
        if first:
            first(Repo(self.workspace))
        restore_packages(temp, inputs, event)
        job_environ = Job(
            machine, event, payload, sha=sha, ref=ref, GITHUB_RUN_ID=str(self.jobs), **(environ or {})
        ).environ
        others = self.cache.actions | {"actions/setup-python": setup_python, "actions/upload-artifact": self._upload}
        finished = Runner(temp, self.workspace, job_environ, others, token=TOKEN, forks=self.forks).run(
            action, **inputs
        )
        print(finished.log)
        self.look_for_secrets(finished, inputs.get("token", TOKEN))
        return finished

    def _upload(self, given: Mapping[str, str]) -> dict[str, str]:
        """Stands for actions/upload-artifact: what was uploaded last, by name."""
        self.uploads[given["name"]] = Path(given["path"])
        return {}

    def look_for_secrets(self, finished: Finished, token: str) -> None:
        """Check that each form of the token is masked before it could be shown, and is in no
        file.
        """
        shown = "\n".join(line for line in finished.log.splitlines() if not line.startswith("::add-mask::"))
        assert token in finished.masks or not token or not finished.step("prepare").outputs
        for mask in finished.masks:
            assert mask not in shown + finished.summary + str(finished.outputs) + str(finished.variables)
        for folder in (self.workspace, self.cache.root):
            for path in folder.rglob("*"):
                assert not (path.is_file() and not path.is_symlink() and TOKEN.encode() in path.read_bytes()), path


def drop(ada: User) -> tuple[str, str]:
    """A main branch that went on, and a merge of it and a topic that keeps only the topic's pin:
    their commits.
    """
    ada.git("switch", "-q", "-c", "topic")
    ada.write_document("topic.md", "Only the topic knows of otters.")
    ada.git("push", "-q", "origin", "topic")
    ada.git("switch", "-q", "main")
    ada.write_document("main.md", "Only main knows of badgers.")
    ada.git("push", "-q", "origin", "main")
    merge = ada.git("commit-tree", "topic^{tree}", "-p", "main", "-p", "topic", "-m", "merge")
    ada.git("push", "-q", "--no-verify", "origin", f"{merge}:refs/heads/queue")
    return ada.git("rev-parse", "main"), merge


@pytest.fixture
def ci(world: World, tmp_path: Path) -> Ci:
    return Ci(world, tmp_path, CacheService(tmp_path / "cache"))


@pytest.fixture
def ci_of_processes(ci: Ci) -> Ci:
    """Each step is a process of its own, in the environment that the Action has installed."""
    ci.forks = False
    return ci
