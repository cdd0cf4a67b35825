"""What docs/ci.md shows for other services than GitHub's, and every night, run as it stands
there, in clones of a real remote.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support import events, hosted, people
from tests.support.hosted import Ci
from tests.support.people import World
from tests.support.repos import ON, Repo

pytestmark = pytest.mark.hooks("off")

shared, world, ci = people.shared, people.world, hosted.ci

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text()
QUERIES = "queries:\n  - query: who renews certificates\n    collection: handbook\n    first: handbook/deep/tls.txt\n"


def shell() -> str:
    [text] = re.findall(r"(?ms)^### Plain shell\n.*?^```sh\n(.*?)^```", PAGE)
    return str(text)


def gitlab() -> str:
    """As GitLab's runner puts the lines of `script` together."""
    [text] = re.findall(r"(?ms)^```yaml\n(# \.gitlab-ci\.yml\n.*?)^```", PAGE)
    return "\n".join(["set -eo pipefail", *yaml.safe_load(text)["knowledge"]["script"]])


@dataclass(frozen=True)
class Service:
    """Runs a script in a checkout of its own, with the whole history, detached."""

    world: World
    script: str

    def run(self, commit: str, **environ: str) -> tuple[int, str]:
        script, replaced = re.subn(r"(?m)^pip install .*\n", "", self.script)
        assert replaced == 1  # what it installs is here
        folder = self.world.top / f"checkout-{len(list(self.world.top.iterdir()))}"
        self.world.hub.git("clone", "-q", str(self.world.hub.top), str(folder))
        Repo(folder).git("checkout", "-q", "--detach", commit)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env=os.environ | environ | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


def outcomes(world: World, commit: str) -> list[tuple[int, str]]:
    """Of both recipes, for a merge request to main."""
    request = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
    return [Service(world, shell()).run(commit), Service(world, gitlab()).run(commit, **request)]


def test_a_recipe_passes_what_may_be_merged_and_stops_at_what_may_not(world: World) -> None:
    ada = world.ada
    ada.write(".vmrag/queries.yaml", QUERIES)
    ada.git("switch", "-q", "-c", "topic")
    ada.write_document("otters.md", "Otters sleep on their backs.")
    ada.git("push", "-q", "origin", "topic", env=ON)
    for code, said in outcomes(world, "origin/topic"):
        assert code == 0, said
        assert "nothing is lost" in said
        assert "1 query answered as expected" in said

    ada.git("switch", "-q", "main")
    ada.write_document("badgers.md", "Badgers dig.")
    ada.git("push", "-q", "origin", "main", env=ON)
    for code, said in outcomes(world, "origin/topic"):
        assert code == 1
        assert "KNOWLEDGE_DROPPED" in said
        assert "git merge origin/main" in said
        assert "answered as expected" not in said  # the lines after it do not run

    ada.git("switch", "-q", "topic")
    ada.git("merge", "-q", "--no-edit", "main")
    ada.write_document("deep/tls.txt", "Nobody looks after these.")
    ada.git("push", "-q", "origin", "topic", env=ON)
    for code, said in outcomes(world, "origin/topic"):
        assert code == 1
        assert "nothing is lost" in said
        assert "1 of 1 query not answered as expected" in said


def test_a_recipe_stops_where_the_knowledge_cannot_be_had(world: World) -> None:
    ada = world.ada
    ada.write_document("badgers.md", "Badgers dig.")
    ada.git("push", "-q", "origin", "main")  # its hook, which takes the knowledge along, is off
    code, said = Service(world, shell()).run("origin/main")
    assert code != 0
    assert "Looked at" not in said


def test_gitlab_looks_at_what_was_pushed_where_there_is_no_merge_request(world: World) -> None:
    ada = world.ada
    ada.commit(**{".vmrag/queries.yaml": QUERIES})
    ada.git("push", "-q", "origin", "main")
    code, said = Service(world, gitlab()).run("origin/main")
    assert code == 0, said
    assert "Looked at 1 commit" in said


def test_every_night_the_whole_history_is_looked_at(ci: Ci) -> None:
    [text] = re.findall(r"(?ms)^```yaml\n(name: knowledge, every night\n.*?)^```", PAGE)
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
    done = ci.run("schedule", event, sha=ci.tip, ref="refs/heads/main", depth=None, **ours["with"])
    assert done.passed
    path = os.pathsep.join([*done.paths, os.environ["PATH"]])
    environ = os.environ | done.variables | {"PATH": path}
    looked = subprocess.run(
        ["bash", "-e", "-c", last["run"]], cwd=ci.workspace, env=environ, capture_output=True, text=True, check=False
    )
    assert looked.returncode == 1
    assert f"The commit {squashed[:12]} drops knowledge" in looked.stdout
