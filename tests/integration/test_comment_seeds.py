"""Random pull requests, and the comment about each of them.

The generator of a request knows which queries get other answers, because each query is answered by
one document alone, whose words occur in no other one. The test compares the comment with that
knowledge, not with a comparison of the program.

`VMRAG_COMMENT_SEEDS=200 pytest -n 2 tests/integration/test_comment_seeds.py` runs 200 of them.
"""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import templates
from tests.support.checkout import TOKEN
from tests.support.events import FORK, OWN
from tests.support.github_comments import RUN, CommentsApi, OtherJob
from tests.support.github_rest import serving
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project, opened
from vmrag_action.steps.comment import FILE
from vmrag_link.ops.report.comment_data import build_comment_data
from vmrag_link.ops.report.ends import NamedEnd
from vmrag_link.ops.report.gather import gather_report

pytestmark = pytest.mark.hooks("off")

SEEDS = int(os.environ.get("VMRAG_COMMENT_SEEDS") or 6)

TOPICS = (
    "otters eat trout", "beavers gnaw willow", "cranes winter abroad", "kettles boil water", "looms weave linen",
    "glaciers grind bedrock", "violins need rosin", "sextants measure altitude", "yeast raises dough",
    "copper conducts current", "monsoons flood paddies", "lighthouses warn ships",
)  # fmt: skip
"""Each has a document of its own, and a question in its words."""

UNASKED = ("quarries hew granite", "saffron dyes robes", "walruses haul out")
"""Documents that no question is about."""

ASKED: tuple[dict[str, Any], ...] = (
    {"mode": "keyword", "k": 5}, {"mode": "hybrid", "k": 1}, {"mode": "vector", "k": 1}, {"mode": "hybrid"}, {"mode": "vector"},
)  # fmt: skip
"""Queries by words find only that document; by meaning it comes first, and documents below it do
not matter.

Every other query that finds nothing else states its expectation.
"""

DOCUMENT = re.compile(r"(?m)^- (added|changed|moved|removed): (?:`(.+?)` → )?`(.+?)`$")
QUESTION = re.compile(r"(?m)^- `(.+?)`, (?:no longer as expected, )?first difference at place \d+\b")


def text(topic: str, fact: int, *, tail: str = "") -> str:
    """A short section that answers, and one far behind, in words of its own."""
    words = random.Random(topic)
    lines = [" ".join("".join(words.choices("bcdfghjklmnpqrstvwxz", k=9)) for _ in range(12)) for _ in range(10)]
    rest = "\n".join(lines[1:])
    sentences = f"{topic}. " * 12
    return f"# {topic}\n\nNote {fact}: {sentences}\n\n## {lines[0]}\n\n{rest} {tail}\n"


def name(topic: str) -> str:
    return f"{topic.split(maxsplit=1)[0]}.md"


def build(top: Path) -> None:
    project = new_project(top / "project")
    for number, topic in enumerate((*TOPICS, *UNASKED)):
        project.write(f"docs/{name(topic)}", text(topic, number))
    queries = [{"query": topic} | ASKED[number % len(ASKED)] for number, topic in enumerate(TOPICS)]
    for query in queries[::2]:
        if "k" in query:
            query["expect"] = [f"handbook/{name(query['query'])}"]
    project.write(".vmrag/queries.yaml", json.dumps({"queries": queries}))
    project.vmrag("init", "--knowledge-base", "--no-sources")
    keep(project, "first")
    project.git("switch", "-q", "-c", "topic")


def keep(project: Project, message: str) -> str:
    """Import, commit both, and return the commit."""
    project.vmrag("import", "docs", "--collection", "handbook", "--copy", "--base", "docs", "--prune")
    project.vmrag("commit", "-m", message, code=None)  # or there is nothing to commit
    project.git("add", "-A")
    project.git("commit", "-q", "--allow-empty", "-m", message)
    return project.git("rev-parse", "HEAD")


class MadeRequest:
    """A generated change, and the expected content of the comment."""

    def __init__(self, seed: int, project: Project) -> None:
        self.random, self.project = random.Random(seed), project
        self.questions: set[str] = set()
        self.documents: set[tuple[str, str]] = set()
        topics = self.random.sample(TOPICS, 4)
        for topic in topics[: self.random.randrange(5)]:
            self.random.choice((self.edit, self.edit, self.remove, self.tail, self.move))(topic)
        if self.random.random() < 0.4:
            self.edit(self.random.choice(UNASKED))
        if self.random.random() < 0.3:
            self.add()
        project.write("main.py", f"print({seed})\n")

    def edit(self, topic: str) -> None:
        self.write(topic, text(topic, self.random.randrange(100, 1000)))
        self.questions |= {topic} & set(TOPICS)
        self.documents.add(("changed", name(topic)))

    def remove(self, topic: str) -> None:
        (self.project.top / "docs" / name(topic)).unlink()
        self.questions.add(topic)
        self.documents.add(("removed", name(topic)))

    def tail(self, topic: str) -> None:
        """A part that answers nothing."""
        self.write(topic, text(topic, TOPICS.index(topic), tail=f"errata {self.random.randrange(1000)}"))
        self.documents.add(("changed", name(topic)))

    def move(self, topic: str) -> None:
        """The same text of another file is the same answer. The document keeps its name."""
        folder = self.project.top / "docs"
        (folder / name(topic)).rename(folder / f"zz-{name(topic)}")
        self.documents.add(("changed", name(topic)))

    def add(self) -> None:
        self.project.write("docs/zeppelins.md", text("zeppelins carry mail", 1))
        self.documents.add(("added", "zeppelins.md"))

    def write(self, topic: str, content: str) -> None:
        self.project.write(f"docs/{name(topic)}", content)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return templates.build_once(tmp_path_factory, "comment_seeds", build)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.sample(2)
def test_comment_names_the_questions_that_are_answered_otherwise_and_no_other(seed, corpus, tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = Project(templates.copy_tree(corpus / "project", tmp_path / "project"))
    made = MadeRequest(seed, project)
    with serving(TOKEN, CommentsApi) as api:
        report(api, project, keep(project, "changed"), tmp_path, monkeypatch)
        said = "\n".join(api.ours(7))
        assert (len(api.ours(7)) == 1) is bool(made.questions or made.documents), said
        assert set(QUESTION.findall(said)) == made.questions, said
        assert {(kind, shown.partition("/")[2]) for kind, _, shown in DOCUMENT.findall(said)} == made.documents
        assert len(said.splitlines()) <= 60

        project.git("checkout", "-q", "main", "--", ".dolt-version")
        project.git("commit", "-q", "--allow-empty", "-m", "taken back")
        before = len(api.comments.get(7, []))
        report(api, project, project.git("rev-parse", "HEAD"), tmp_path, monkeypatch)
        assert len(api.comments.get(7, [])) == before
        assert all("no longer changes" in our for our in api.ours(7))


def report(api: CommentsApi, project: Project, head: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the work of both workflows after a push of a fork."""
    with opened(project) as ws, gather_report(ws, NamedEnd("main"), NamedEnd(head)) as result:
        data = build_comment_data(7, result.summary, head)
    api.artifacts.clear()
    api.keep(RUN, {FILE: msgspec.json.encode(data)})
    api.open(7, head, source=FORK, base=OWN)
    with monkeypatch.context() as patch:
        OtherJob(api, folder, patch).run(head=head)
