"""The recipes of `ci/` for other services than GitHub's, run by a real bash in checkouts of a real
remote, and ci/github/nightly.yml. No service is here: what it does around these
lines is not tried.
"""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from tests.support import events, hosted, people, recipes
from tests.support.hosted import Ci
from tests.support.people import World
from tests.support.recipes import SERVICES, Ran
from tests.support.repos import ON, Repo

pytestmark = pytest.mark.hooks("off")

shared, world, ci = people.shared, people.world, hosted.ci

QUERIES = "queries:\n  - query: who renews certificates\n    collection: handbook\n    first: handbook/deep/tls.txt\n"

services = pytest.mark.parametrize("service", SERVICES)


def leaves_what_its_service_reads(service: str, top: Path) -> None:
    result = sorted(top.rglob("vmrag-*.*"))
    names = {"vmrag-check.xml", "vmrag-verify.xml"}
    assert {file.name for file in result} == names | (
        {"vmrag-check.json", "vmrag-verify.json"} if service == "gitlab" else set()
    )
    for path in result:
        if path.suffix == ".xml":
            assert list(ET.parse(path).getroot().iter("testcase"))
    if service == "bitbucket":
        assert {path.parent.name for path in result} == {"test-results"}


def checkout(world: World, name: str) -> Repo:
    """Check out one commit, detached, as a CI service does."""
    folder = world.top / f"checkout-{len(list(world.top.iterdir()))}"
    repo = events.checkout(world.hub.top, folder, world.hub.git("rev-parse", name), depth=1)
    repo.git("update-ref", f"refs/remotes/origin/{name}", "HEAD")
    return repo


def run(world: World, service: str, name: str, *, target: str = "") -> Ran:
    return recipes.run(service, checkout(world, name).top, target=target)


def topic(world: World) -> None:
    """A branch with a document more, and a query that is answered."""
    ada = world.ada
    ada.write(".vmrag/queries.yaml", QUERIES)
    ada.git("switch", "-q", "-c", "topic")
    ada.write_document("otters.md", "Otters sleep on their backs.")
    ada.git("push", "-q", "origin", "topic", env=ON)


@pytest.mark.sample(1)
@services
def test_recipe_passes_mergeable_requests_reports_and_stops_at_others(world: World, service: str) -> None:
    topic(world)
    repo = checkout(world, "topic")
    code, said = recipes.run(service, repo.top, target="main")
    assert code == 0, said
    assert "nothing is lost" in said
    assert "1 query answered as expected" in said
    leaves_what_its_service_reads(service, repo.top)

    ada = world.ada
    ada.git("switch", "-q", "main")
    ada.write_document("badgers.md", "Badgers dig.")
    ada.git("push", "-q", "origin", "main", env=ON)
    code, said = run(world, service, "topic", target="main")
    assert code == 1, said
    assert "KNOWLEDGE_DROPPED" in said
    assert "git merge origin/main" in said
    assert "answered as expected" not in said  # the lines after it do not run


@pytest.mark.sample(1)
@services
def test_recipe_checks_pushed_commits_and_stops_at_a_missed_query(world: World, service: str) -> None:
    ada = world.ada
    ada.commit(**{".vmrag/queries.yaml": QUERIES})
    ada.write_document("deep/tls.txt", "Nobody looks after these.")
    ada.git("push", "-q", "origin", "main", env=ON)
    code, said = run(world, service, "main")
    assert code == 1, said
    assert "Checked 1 commit " in said, said
    assert "1 of 1 query not answered as expected" in said


@pytest.mark.sample(1)
@services
def test_recipe_stops_if_the_knowledge_is_unavailable(world: World, service: str) -> None:
    ada = world.ada
    ada.write_document("badgers.md", "Badgers dig.")
    ada.git("push", "-q", "origin", "main")  # its hook, which takes the knowledge along, is off
    code, said = run(world, service, "main")
    assert code != 0
    assert "Checked" not in said


def test_nightly_job_checks_the_whole_history(ci: Ci) -> None:
    text = (recipes.WORKFLOWS / "nightly.yml").read_text()
    checkout, ours, last = yaml.safe_load(text)["jobs"]["nightly"]["steps"]
    assert checkout["with"]["fetch-depth"] == 0
    ada, hub = ci.ada, ci.world.hub
    ada.commit(**{".vmrag/queries.yaml": QUERIES})
    ada.git("switch", "-q", "-c", "topic")
    ada.write_document("otters.md", "Otters sleep on their backs.")
    ada.push("origin", "topic")
    ada.git("switch", "-q", "main")
    ada.write_document("badgers.md", "Badgers dig.")
    ada.push("origin", "main")
    squashed = hub.git("commit-tree", "topic^{tree}", "-p", "main", "-m", "Squash topic, with its own pin")
    hub.git("update-ref", "refs/heads/main", hub.git("commit-tree", "topic^{tree}", "-p", squashed, "-m", "later"))
    event = {"schedule": "23 3 * * *", "repository": events.OWN}
    result = ci.run("schedule", event, sha=ci.tip, ref="refs/heads/main", depth=None, **ours["with"])
    assert result.passed
    path = os.pathsep.join([*result.paths, os.environ["PATH"]])
    environ = os.environ | result.variables | {"PATH": path}
    looked = subprocess.run(
        ["bash", "-e", "-c", last["run"]], cwd=ci.workspace, env=environ, capture_output=True, text=True, check=False
    )
    assert looked.returncode == 1
    assert f"the commit {squashed[:12]} drops documents" in looked.stdout
