"""Rows that plain `dolt` or any client of a server writes in a knowledge base are documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import dolt
from tests.support import dolt_server as servers
from tests.support.dolt_server import DoltServer
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from vmrag_link import __version__
from vmrag_link.engines.dolt import reading
from vmrag_link.engines.dolt.connection import SqlConnection, SqlRow
from vmrag_link.engines.dolt.engine import DoltEngine
from vmrag_link.models import Document, content_hash

COMMIT = "CALL dolt_commit('-A', '-m', 'theirs', '--author', 'Eve <eve@example.org>')"
WRONG = "UPDATE documents SET content = 'The kettle is green.' WHERE doc_id = 'kettle.md'"
PARTIAL = "INSERT INTO documents (collection_name, doc_id, content) VALUES ('handbook', 'new.md', 'Tea needs water.')"


class Known(Project):
    """A project whose knowledge base other programs reach by `sql`."""

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.globals: list[str] = []

    def sql(self, *statements: str, branch: str = "main") -> None:
        raise NotImplementedError

    def session(self, *statements: str, branch: str = "main") -> None:
        """Run statements in one session."""
        self.sql(*statements, branch=branch)

    def set_global(self, variable: str, value: str) -> None:
        """Set a global variable of Dolt until the test ends."""
        raise NotImplementedError

    def index(self) -> dict[str, str]:
        """Return the answers of a new index and of the existing one; both must be equal."""
        results = self.ask("query", "kettle tea water")["results"]
        self.forget_indexes()
        assert [result["text"] for result in self.ask("query", "kettle tea water")["results"]] == [
            passage["text"] for passage in results
        ]
        return {document["doc_id"]: document["text"] for document in results}

    def fingerprint(self) -> str:
        return str(self.ask("fingerprint")["fingerprint"])


class _OfProgram(Known):
    def sql(self, *statements: str, branch: str = "main") -> None:
        for statement in statements:
            dolt.run(self.shared / "kb", "--use-db", f"kb/{branch}", "sql", "-q", statement)

    def session(self, *statements: str, branch: str = "main") -> None:
        self.sql("; ".join(statements), branch=branch)

    def set_global(self, variable: str, value: str) -> None:
        dolt.run(self.shared / "kb", "config", "--local", "--add", f"sqlserver.global.{variable}", value)


class _OfServer(Known):
    def sql(self, *statements: str, branch: str = "main") -> None:
        database = self.git("config", "vmrag.dolt.database").strip()
        servers.session_server().sql(f"USE `{database}/{branch}`", *statements)

    def set_global(self, variable: str, value: str) -> None:
        servers.session_server().sql(f"SET GLOBAL {variable} = {value}")
        self.globals.append(variable)


@pytest.fixture(params=["program", "server"])
def kettle(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Known]:
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
    made.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    made.record("first", kettle="The kettle is red.", faq="A frequent question.")
    yield made
    for variable in made.globals:
        servers.session_server().sql(f"SET GLOBAL {variable} = DEFAULT")


def test_uncommitted_text_applies_despite_a_wrong_hash(kettle: Known) -> None:
    before = kettle.fingerprint()
    kettle.sql(WRONG)
    assert kettle.marks() == {"kettle.md": "modified", "faq.md": None}
    assert kettle.index()["kettle.md"] == "The kettle is green."
    assert kettle.fingerprint() != before
    assert "green" in kettle.vmrag("diff").out


def test_committed_hash_of_a_document_matches_its_text(kettle: Known) -> None:
    before = kettle.fingerprint()
    kettle.sql(WRONG)
    kettle.vmrag("commit", "-m", "green")
    assert kettle.fingerprint() != before
    assert kettle.ask("show", "kettle.md")["content_hash"] == content_hash("The kettle is green.")
    assert kettle.index()["kettle.md"] == "The kettle is green."
    with _engine(kettle) as engine:
        assert _stored(engine, kettle.pinned, "kettle.md") == content_hash("The kettle is green."), (
            "for who reads by SQL"
        )


def test_commit_examines_rows_only_if_another_program_wrote_some(
    kettle: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined: list[str] = []

    def note_query(connection: SqlConnection, at: str | None, query: str) -> Iterator[SqlRow]:
        examined.extend(["rows"] if " AS incomplete " in query else [])
        return read_pages(connection, at, query)

    read_pages = reading.read_pages
    monkeypatch.setattr(reading, "read_pages", note_query)
    kettle.put("note.md", "Ours.")
    kettle.put("note.md", "Ours, changed.")
    examined.clear()
    kettle.vmrag("commit", "-m", "ours")
    assert not examined
    noted = next(kettle.top.rglob("complete.json"))
    for name, change in (("empty", b""), ("damaged", b"[{]"), ("another version", None)):
        kettle.put("note.md", f"Ours, and the file is {name}.")
        noted.write_bytes(noted.read_bytes().replace(__version__.encode(), b"0.1.0") if change is None else change)
        examined.clear()
        kettle.vmrag("commit", "-m", "ours")
        assert examined, name
    for number, ours_first in enumerate((True, False)):
        if ours_first:
            kettle.put("note.md", f"Ours, and theirs follows {number}.")
        kettle.sql(f"UPDATE documents SET content = 'Theirs {number}.' WHERE doc_id = 'kettle.md'")
        if not ours_first:
            kettle.put("note.md", f"Ours after theirs {number}.")
        kettle.vmrag("commit", "-m", "both")
        assert examined
        assert kettle.ask("show", "kettle.md")["content_hash"] == content_hash(f"Theirs {number}.")
        with _engine(kettle) as engine:
            assert _stored(engine, kettle.pinned, "kettle.md") == content_hash(f"Theirs {number}.")


def test_commit_of_another_program_is_pinned_and_answers_alike_in_clones(kettle: Known, tmp_path: Path) -> None:
    before = kettle.fingerprint()
    kettle.sql(WRONG, PARTIAL, COMMIT)
    kettle.vmrag("pin")
    assert kettle.fingerprint() != before
    texts = {"kettle.md": "The kettle is green.", "new.md": "Tea needs water."}
    assert {name: kettle.index()[name] for name in texts} == texts
    kettle.git("commit", "-q", "-am", "theirs")
    if isinstance(kettle, _OfProgram):
        hub = tmp_path / "hub.git"
        kettle.git("init", "-q", "--bare", str(hub))
        kettle.git("remote", "add", "origin", str(hub))
        kettle.git("push", "-q", "-u", "origin", "main")
        kettle.vmrag("push")
        kettle.git("clone", "-q", str(hub), str(tmp_path / "bob"))
    else:
        kettle.git("clone", "-q", str(kettle.top), str(tmp_path / "bob"))
    bob = type(kettle)(tmp_path / "bob")
    if isinstance(kettle, _OfServer):
        for item in ("server", "database"):
            bob.git("config", f"vmrag.dolt.{item}", kettle.git("config", f"vmrag.dolt.{item}").strip())
    bob.vmrag("clone")
    bob.vmrag("verify")
    assert bob.fingerprint() == kettle.fingerprint()
    assert {name: bob.index()[name] for name in texts} == texts


def test_columns_missing_in_a_row_are_read_as_empty(kettle: Known) -> None:
    kettle.sql(
        PARTIAL,
        "INSERT INTO documents (collection_name, doc_id, content, metadata)"
        " VALUES ('handbook', 'spaced.md', 'x', '{\"b\": 1, \"a\": 2}')",
        "INSERT INTO projects (project_id) VALUES ('p')",
        "INSERT INTO issue_logs (log_id, project_id, content) VALUES ('l', 'p', 'It boils over.')",
        "INSERT INTO knowledge_docs (doc_id, tool_name, content) VALUES ('k', 'git', 'It commits.')",
    )
    with _engine(kettle) as engine:
        at = kettle.ask("commit", "-m", "theirs")["revision"]
        new = engine.find_document(at, "handbook", "new.md")
        assert new == Document("handbook", "new.md", "", "Tea needs water.", content_hash("Tea needs water."))
        spaced = engine.find_document(at, "handbook", "spaced.md")
        assert spaced is not None
        assert spaced.metadata == '{"a":2,"b":1}'
        assert [project.name for project in engine.read_projects(at)] == [""]
        assert {document.doc_id for document in engine.read_documents(at, table="issue_logs")} == {"l"}
        assert {document.doc_id for document in engine.read_documents(at, table="knowledge_docs")} == {"k"}
    assert kettle.index()["new.md"] == "Tea needs water."


def test_wrong_hash_alone_is_corrected_by_the_next_commit(kettle: Known) -> None:
    kettle.sql("UPDATE documents SET content_hash = 'x'")
    assert set(kettle.marks().values()) == {None}
    kettle.vmrag("commit", "-m", "nothing", code=1)
    kettle.put("more.md", "More.")
    revision = kettle.ask("commit", "-m", "more")["revision"]
    with _engine(kettle) as engine:
        assert _stored(engine, revision, "kettle.md") == content_hash("The kettle is red.")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("dolt_show_system_tables", "1"),
        ("sql_select_limit", "1"),
        ("dolt_transaction_commit", "1"),
        ("dolt_override_schema", "main"),
        ("gpgsign", "1"),
    ],
)
def test_commands_ignore_global_variable(kettle: Known, variable: str, value: str) -> None:
    if isinstance(kettle, _OfServer) and variable in ("dolt_override_schema", "gpgsign"):
        pytest.skip("a client of a server cannot set it for other sessions")
    kettle.set_global(variable, value)
    kettle.record("more", more="More tea.", water="Water boils.")
    assert kettle.index() == {
        "kettle.md": "The kettle is red.",
        "faq.md": "A frequent question.",
        "more.md": "More tea.",
        "water.md": "Water boils.",
    }
    assert kettle.status()["in_sync"]


@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
def test_verified_fingerprint_accepts_collection_without_row(kettle: Known, committed: bool) -> None:
    insert = "INSERT INTO documents (collection_name, doc_id, content) VALUES ('tea', 'new.md', 'Tea needs water.')"
    log = "INSERT INTO issue_logs (log_id, project_id, content) VALUES ('l', 'p', 'It boils over.')"
    kettle.sql(insert, log, *([COMMIT] if committed else []))
    if committed:
        kettle.vmrag("pin")
    kettle.vmrag("fingerprint", "--verify")
    assert kettle.ask("show", "tea/new.md")["content"] == "Tea needs water."
    assert kettle.ask("show", "issues_p/l")["content"] == "It boils over."
    if not committed:
        kettle.vmrag("commit", "-m", "theirs")
        with _engine(kettle) as engine:
            assert {collection.name for collection in engine.list_collections(kettle.pinned)} == {"handbook", "tea"}
        kettle.vmrag("fingerprint", "--verify")


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
def test_invalid_row_is_reported_by_name_and_discarded_by_restore(
    kettle: Known, column: str, sql: str, committed: bool
) -> None:
    pinned = kettle.pinned
    kettle.sql(sql, *([COMMIT] if committed else []))
    command = ["pin"] if committed else ["commit", "-m", "theirs"]
    refused = kettle.vmrag(*command, "--json", code=3).error
    assert (
        refused["details"] | {"table": "documents", "row": "handbook/kettle.md", "column": column} == refused["details"]
    )
    assert "documents" in refused["message"]
    assert "handbook/kettle.md" in refused["message"]
    assert column in refused["message"]
    assert "vmrag restore handbook/kettle.md" in refused["hint"]
    assert kettle.pinned == pinned
    hint = "run 'vmrag pin' to move the pin there" if committed else "vmrag restore handbook/kettle.md"
    assert hint in kettle.vmrag("status", code=None).out
    error = kettle.vmrag("restore", "handbook/kettle.md", "--json", code=2).error
    assert error["code"] == "CONFIRMATION_REQUIRED"
    kettle.vmrag("restore", "handbook/kettle.md", "--yes", code=None)
    if committed:
        kettle.vmrag("pin")
        kettle.git("commit", "-q", "-am", "theirs, put right")
    assert kettle.texts()["kettle.md"] == "The kettle is red."
    assert kettle.status()["in_sync"]
    assert kettle.index()["kettle.md"] == "The kettle is red."


def test_push_rejects_rows_that_cannot_be_fetched(kettle: Known, tmp_path: Path) -> None:
    """Also on a branch that no pin names: a fetch checks all heads."""
    if isinstance(kettle, _OfServer):
        pytest.skip("what is on a server is not pushed")
    hub = tmp_path / "hub.git"
    kettle.git("init", "-q", "--bare", str(hub))
    kettle.git("remote", "add", "origin", str(hub))
    kettle.git("push", "-q", "-u", "origin", "main")
    kettle.sql("UPDATE documents SET metadata = 'x' WHERE doc_id = 'kettle.md'", COMMIT)
    refused = kettle.vmrag("push", "--json", code=None).error
    assert refused["message"].startswith(
        "nothing was pushed, because no clone could fetch it: invalid row 'handbook/kettle.md'"
    )
    assert "vmrag restore handbook/kettle.md" in refused["hint"]
    kettle.vmrag("restore", "handbook/kettle.md", "--yes", code=None)
    kettle.vmrag("push")
    kettle.git("clone", "-q", str(hub), str(tmp_path / "bob"))
    Project(tmp_path / "bob").vmrag("clone")


def test_pinned_revision_survives_when_another_program_resets_its_branch(kettle: Known) -> None:
    """Also after a second KB branch was pinned, and both were reset."""
    first = kettle.pinned
    kettle.git("switch", "-q", "-c", "feature", "HEAD")
    kettle.record("more", more="More tea.")
    second = kettle.pinned
    kettle.git("switch", "-q", "main")
    kettle.record("water", water="Water boils.")
    third = kettle.pinned
    with _engine(kettle) as engine:
        names = [branch.name for branch in engine.list_branches() if not branch.name.startswith("vmrag")]
        root = next(branch.head for branch in engine.list_branches() if branch.name == "vmrag_root")
    for name in names:
        kettle.sql(f"CALL dolt_reset('--hard', '{root}')", branch=name)
    kettle.sql("CALL dolt_gc()")
    with _engine(kettle) as engine:
        assert [revision for revision in (first, second, third) if not engine.has_revision(revision)] == []
    assert kettle.index()["water.md"] == "Water boils."


@pytest.mark.parametrize("moved", [False, True], ids=["deleted", "moved"])
def test_doctor_restores_root_branch_that_another_program_changed(kettle: Known, moved: bool) -> None:
    if isinstance(kettle, _OfServer):
        pytest.skip("a server keeps its default branch")
    kb, hub = kettle.shared / "kb", kettle.top.with_name("hub.git")
    kettle.git("init", "-q", "--bare", str(hub))
    kettle.git("remote", "add", "origin", str(hub))
    dolt.run(kb, "checkout", "main")
    if moved:
        dolt.run(kb, "branch", "-f", "vmrag_root", "main")
    else:
        dolt.run(kb, "branch", "-D", "vmrag_root")
        refused = kettle.vmrag("push", "--json", code=None).error
        assert refused["code"] == "BRANCH_NOT_FOUND"
        assert refused["hint"] == "run 'vmrag doctor --fix' to repair it"
    assert "ROOT_MISPLACED" in kettle.vmrag("doctor", code=None).out
    kettle.vmrag("doctor", "--fix", code=None)
    assert "ROOT_MISPLACED" not in kettle.vmrag("doctor", code=None).out
    kettle.git("push", "-q", "-u", "origin", "main")
    kettle.vmrag("push")
    kettle.git("clone", "-q", str(hub), str(kettle.top.with_name("bob")))
    bob = Project(kettle.top.with_name("bob"))
    bob.vmrag("clone")
    assert bob.texts()["kettle.md"] == "The kettle is red."


def test_commands_report_open_merge_conflict_of_another_program(kettle: Known) -> None:
    kettle.sql("CALL dolt_branch('other', 'main')")
    theirs = "CALL dolt_commit('-A', '-m', 'theirs', '--author', 'Eve <eve@example.org>')"
    kettle.sql("UPDATE documents SET title = 'B' WHERE doc_id = 'kettle.md'", theirs, branch="other")
    kettle.sql("UPDATE documents SET title = 'A' WHERE doc_id = 'kettle.md'", COMMIT)
    kettle.vmrag("pin")
    kettle.git("commit", "-q", "-am", "theirs")
    kettle.session("SET @@dolt_allow_commit_conflicts = 1", "CALL dolt_merge('other')")
    for command in (["status"], ["commit", "-m", "x"], ["query", "kettle"]):
        refused = kettle.vmrag(*command, "--json", code=None).error
        assert "CALL dolt_merge('--abort')" in refused["hint"]
    assert "has an unfinished merge of another program" in kettle.vmrag("doctor", code=None).out
    kettle.sql("CALL dolt_merge('--abort')")
    assert kettle.status()["in_sync"]


@pytest.mark.parametrize(
    ("change", "removal"),
    [
        ("CREATE TABLE foo (a INT PRIMARY KEY)", "DROP TABLE foo"),
        ("ALTER TABLE documents ADD COLUMN more INT", "CALL dolt_checkout('documents')"),
        ("INSERT INTO dolt_ignore VALUES ('x', 1)", "DELETE FROM dolt_ignore"),
    ],
)
def test_hint_removes_uncommitted_change_of_schema(kettle: Known, change: str, removal: str) -> None:
    kettle.sql(change)
    refused = kettle.vmrag("status", "--json", code=None).error
    assert removal in refused["hint"]
    kettle.sql(removal)
    assert kettle.status()["in_sync"]


@pytest.mark.parametrize("names", [["handbook/kettle.md"], []], ids=["named", "all"])
def test_restore_cleans_branch_whose_row_has_null(kettle: Known, names: list[str]) -> None:
    kettle.sql("UPDATE documents SET last_modified = NULL, source = NULL, source_key = NULL WHERE doc_id = 'kettle.md'")
    kettle.vmrag("restore", *names, "--yes", code=None)
    assert not kettle.status()["kb"]["dirty"]
    assert kettle.texts()["kettle.md"] == "The kettle is red."


def test_gc_removes_branch_that_another_program_checked_out(kettle: Known) -> None:
    if isinstance(kettle, _OfServer):
        pytest.skip("on a server, a client checks out a branch for its own session")
    kettle.git("switch", "-q", "-c", "feature", "HEAD")
    kettle.record("more", more="More tea.")
    kettle.git("switch", "-q", "main")
    kettle.git("branch", "-q", "-D", "feature")
    dolt.run(kettle.shared / "kb", "checkout", "feature")
    kettle.vmrag("gc", "--apply")
    with _engine(kettle) as engine:
        assert engine.find_branch("feature") is None
    assert "* vmrag_root" in dolt.run(kettle.shared / "kb", "branch")
    assert kettle.texts()["kettle.md"] == "The kettle is red."


def test_foreign_branch_on_remote_blocks_no_user(kettle: Known, tmp_path: Path) -> None:
    if isinstance(kettle, _OfServer):
        pytest.skip("what is on a server is not pushed")
    hub = tmp_path / "hub.git"
    kettle.git("init", "-q", "--bare", str(hub))
    kettle.git("remote", "add", "origin", str(hub))
    kettle.git("push", "-q", "-u", "origin", "main")
    kettle.vmrag("push")
    dolt.run(tmp_path, "clone", "--ref", "refs/vmrag/dolt", f"git+file://{hub}", "eve")
    for command in (
        ["checkout", "-b", "analytics"],
        ["sql", "-q", "CREATE TABLE visits (id INT PRIMARY KEY)"],
        ["add", "-A"],
        ["commit", "--author", "Eve <eve@example.org>", "-m", "visits"],
        ["push", "origin", "analytics"],
    ):
        dolt.run(tmp_path / "eve", *command)
    assert "left out of origin: 'analytics' (tables of another program)" in kettle.vmrag("fetch").err
    kettle.record("more", more="More tea.")
    kettle.git("push", "-q")
    kettle.vmrag("push")
    kettle.git("clone", "-q", str(hub), str(tmp_path / "bob"))
    bob = Project(tmp_path / "bob")
    bob.vmrag("clone")
    assert bob.texts()["more.md"] == "More tea."
    bob.vmrag("gc", "--remote", "--apply")
    dolt.run(tmp_path, "clone", "--ref", "refs/vmrag/dolt", f"git+file://{hub}", "eve-again")
    assert "analytics" in dolt.run(tmp_path / "eve-again", "branch", "-a")
    kettle.git("switch", "-q", "-c", "analytics")
    kettle.record("own", own="Our own analytics.")
    refused = kettle.vmrag("push", "--json", code=None).error
    assert refused["code"] == "KNOWLEDGE_REFUSED"
    assert "'analytics'" in refused["message"]


def test_migrate_names_docs_and_tags_that_it_leaves_behind(kettle: Known) -> None:
    if isinstance(kettle, _OfServer):
        pytest.skip("a server is not migrated")
    kettle.sql("INSERT INTO dolt_docs VALUES ('README.md', 'Hello')", COMMIT)
    dolt.run(kettle.shared / "kb", "tag", "v1", "main")
    kettle.vmrag("pin")
    kettle.git("commit", "-q", "-am", "docs")
    for options in (["--dry-run"], []):
        assert "README.md, tag v1;" in kettle.vmrag("migrate", "--to", "doltlite", *options).err


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
    return str(engine._session.connection.query_rows(query, at=revision)[0]["v"])
