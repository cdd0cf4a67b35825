"""What plain `dolt`, or any client of a server, writes in a knowledge base counts as a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import dolt
from tests.support import dolt_server as servers
from tests.support.dolt_server import DoltServer
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from vmrag_link.engines.dolt.engine import DoltEngine
from vmrag_link.models import Document, content_hash

COMMIT = "CALL dolt_commit('-A', '-m', 'theirs', '--author', 'Eve <eve@example.org>')"
WRONG = "UPDATE documents SET content = 'The kettle is green.' WHERE doc_id = 'kettle.md'"
PARTIAL = "INSERT INTO documents (collection_name, doc_id, content) VALUES ('handbook', 'new.md', 'Tea needs water.')"


class Known(Project):
    """A project whose knowledge base other programs reach by `sql`."""

    def sql(self, *statements: str, branch: str = "main") -> None:
        raise NotImplementedError

    def index(self) -> dict[str, str]:
        """What an index from scratch and the one that is there answer; both have to be the same."""
        found = self.ask("query", "kettle tea water")["results"]
        self.forget_indexes()
        assert [each["text"] for each in self.ask("query", "kettle tea water")["results"]] == [
            each["text"] for each in found
        ]
        return {each["doc_id"]: each["text"] for each in found}

    def fingerprint(self) -> str:
        return str(self.ask("fingerprint")["fingerprint"])


class _OfProgram(Known):
    def sql(self, *statements: str, branch: str = "main") -> None:
        for each in statements:
            dolt.run(self.shared / "kb", "--use-db", f"kb/{branch}", "sql", "-q", each)


class _OfServer(Known):
    def sql(self, *statements: str, branch: str = "main") -> None:
        database = self.git("config", "vmrag.dolt.database").strip()
        servers.session_server().sql(f"USE `{database}/{branch}`", *statements)


@pytest.fixture(params=["program", "server"])
def known(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Known:
    dolt.require()
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "ada")
    made: Known = _OfProgram(project.top)
    if request.param == "server":
        server: DoltServer = request.getfixturevalue("dolt_server")
        monkeypatch.setenv("VMRAG_DOLT_PASSWORD", server.password)
        made = _OfServer(project.top)
        made.git("config", "vmrag.dolt.server", server.address)
        made.git("config", "vmrag.dolt.database", servers.database_for(tmp_path))
    made.vmrag("init", "--engine", "dolt", "--no-hooks")
    made.record("first", kettle="The kettle is red.", faq="A frequent question.")
    return made


def test_an_uncommitted_text_counts_as_it_is_whatever_hash_stands_beside_it(known: Known) -> None:
    before = known.fingerprint()
    known.sql(WRONG)
    assert known.marks() == {"kettle.md": "modified", "faq.md": None}
    assert known.index()["kettle.md"] == "The kettle is green."
    assert known.fingerprint() != before
    assert "green" in known.vmrag("diff").out


def test_the_hash_of_a_document_is_that_of_its_text_in_what_is_committed_too(known: Known) -> None:
    before = known.fingerprint()
    known.sql(WRONG)
    known.vmrag("commit", "-m", "green")
    assert known.fingerprint() != before
    assert known.ask("show", "kettle.md")["content_hash"] == content_hash("The kettle is green.")
    assert known.index()["kettle.md"] == "The kettle is green."
    with _engine(known) as engine:
        assert _stored(engine, known.pinned, "kettle.md") == content_hash("The kettle is green."), (
            "for who reads by SQL"
        )


def test_a_commit_of_another_program_is_pinned_and_answers_alike_wherever_it_is_read(
    known: Known, tmp_path: Path
) -> None:
    before = known.fingerprint()
    known.sql(WRONG, PARTIAL, COMMIT)
    known.vmrag("pin")
    assert known.fingerprint() != before
    texts = {"kettle.md": "The kettle is green.", "new.md": "Tea needs water."}
    assert {name: known.index()[name] for name in texts} == texts
    known.git("commit", "-q", "-am", "theirs")
    if isinstance(known, _OfProgram):
        hub = tmp_path / "hub.git"
        known.git("init", "-q", "--bare", str(hub))
        known.git("remote", "add", "origin", str(hub))
        known.git("push", "-q", "-u", "origin", "main")
        known.vmrag("push")
        known.git("clone", "-q", str(hub), str(tmp_path / "bob"))
    else:
        known.git("clone", "-q", str(known.top), str(tmp_path / "bob"))
    bob = type(known)(tmp_path / "bob")
    if isinstance(known, _OfServer):
        for each in ("server", "database"):
            bob.git("config", f"vmrag.dolt.{each}", known.git("config", f"vmrag.dolt.{each}").strip())
    bob.vmrag("clone")
    bob.vmrag("verify")
    assert bob.fingerprint() == known.fingerprint()
    assert {name: bob.index()[name] for name in texts} == texts


def test_what_a_row_does_not_say_is_empty(known: Known) -> None:
    known.sql(
        PARTIAL,
        "INSERT INTO documents (collection_name, doc_id, content, metadata)"
        " VALUES ('handbook', 'spaced.md', 'x', '{\"b\": 1, \"a\": 2}')",
        "INSERT INTO projects (project_id) VALUES ('p')",
        "INSERT INTO issue_logs (log_id, project_id, content) VALUES ('l', 'p', 'It boils over.')",
        "INSERT INTO knowledge_docs (doc_id, tool_name, content) VALUES ('k', 'git', 'It commits.')",
    )
    with _engine(known) as engine:
        at = known.ask("commit", "-m", "theirs")["revision"]
        new = engine.document(at, "handbook", "new.md")
        assert new == Document("handbook", "new.md", "", "Tea needs water.", content_hash("Tea needs water."))
        spaced = engine.document(at, "handbook", "spaced.md")
        assert spaced is not None
        assert spaced.metadata == '{"a":2,"b":1}'
        assert [each.name for each in engine.projects(at)] == [""]
        assert {each.doc_id for each in engine.documents(at, table="issue_logs")} == {"l"}
        assert {each.doc_id for each in engine.documents(at, table="knowledge_docs")} == {"k"}
    assert known.index()["new.md"] == "Tea needs water."


def test_a_hash_alone_that_is_wrong_is_no_change_and_goes_with_the_next_commit(known: Known) -> None:
    known.sql("UPDATE documents SET content_hash = 'x'")
    assert set(known.marks().values()) == {None}
    known.vmrag("commit", "-m", "nothing", code=1)
    known.put("more.md", "More.")
    revision = known.ask("commit", "-m", "more")["revision"]
    with _engine(known) as engine:
        assert _stored(engine, revision, "kettle.md") == content_hash("The kettle is red.")


BAD = {
    "metadata that is no object": ("metadata", "UPDATE documents SET metadata = 'x' WHERE doc_id = 'kettle.md'"),
    "a NUL": ("content", "UPDATE documents SET content = concat('a', char(0), 'b') WHERE doc_id = 'kettle.md'"),
    "a number too large": (
        "metadata",
        "UPDATE documents SET metadata = '{\"a\": 123456789012345678901234567890}' WHERE doc_id = 'kettle.md'",
    ),
}


@pytest.mark.parametrize(("column", "sql"), BAD.values(), ids=list(BAD))
@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
def test_a_row_that_cannot_be_a_document_is_named_and_given_up_by_restore(
    known: Known, column: str, sql: str, committed: bool
) -> None:
    pinned = known.pinned
    known.sql(sql, *([COMMIT] if committed else []))
    command = ["pin"] if committed else ["commit", "-m", "theirs"]
    refused = known.vmrag(*command, "--json", code=3).error
    assert (
        refused["details"] | {"table": "documents", "row": "handbook/kettle.md", "column": column} == refused["details"]
    )
    assert "documents" in refused["message"]
    assert "handbook/kettle.md" in refused["message"]
    assert column in refused["message"]
    assert "vmrag restore handbook/kettle.md" in refused["hint"]
    assert known.pinned == pinned
    hint = "vmrag pin" if committed else "vmrag restore handbook/kettle.md"
    assert hint in known.vmrag("status", code=None).out
    asked = known.vmrag("restore", "handbook/kettle.md", "--json", code=2).error
    assert "cannot be brought back" in asked["message"]
    known.vmrag("restore", "handbook/kettle.md", "--yes", code=None)
    if committed:
        known.vmrag("pin")
        known.git("commit", "-q", "-am", "theirs, put right")
    assert known.texts()["kettle.md"] == "The kettle is red."
    assert known.status()["in_sync"]
    assert known.index()["kettle.md"] == "The kettle is red."


def test_what_nobody_could_fetch_is_not_pushed(known: Known, tmp_path: Path) -> None:
    """Also on a branch that no pin names: whoever fetches looks at all heads."""
    if isinstance(known, _OfServer):
        pytest.skip("what is on a server is not pushed")
    hub = tmp_path / "hub.git"
    known.git("init", "-q", "--bare", str(hub))
    known.git("remote", "add", "origin", str(hub))
    known.git("push", "-q", "-u", "origin", "main")
    known.sql("UPDATE documents SET metadata = 'x' WHERE doc_id = 'kettle.md'", COMMIT)
    refused = known.vmrag("push", "--json", code=None).error
    assert refused["message"].startswith(
        "Nothing was pushed, because nobody could fetch it. The row 'handbook/kettle.md'"
    )
    assert "vmrag restore handbook/kettle.md" in refused["hint"]
    known.vmrag("restore", "handbook/kettle.md", "--yes", code=None)
    known.vmrag("push")
    known.git("clone", "-q", str(hub), str(tmp_path / "bob"))
    Project(tmp_path / "bob").vmrag("clone")


class _engine:  # noqa: N801  reads as a function
    def __init__(self, project: Project) -> None:
        from tests.support.terminal import opened

        self._opened = opened(project)

    def __enter__(self) -> DoltEngine:
        engine = self._opened.__enter__().engine
        assert isinstance(engine, DoltEngine)
        return engine

    def __exit__(self, *failure: object) -> None:
        self._opened.__exit__(*failure)  # type: ignore[arg-type]


def _stored(engine: DoltEngine, revision: str, doc_id: str) -> str:
    query = f"SELECT content_hash AS v FROM documents WHERE doc_id = '{doc_id}'"
    return str(engine._session.connection.rows(query, at=revision)[0]["v"])
