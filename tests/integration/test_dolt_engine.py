"""Guarantees of the engine on Dolt alone: its tables, and the foreign content that it rejects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import dolt
from tests.support.engines import AUTHOR, DATE, document, head, root, store
from vmrag_link.engines.base import Write
from vmrag_link.engines.dolt import schema
from vmrag_link.engines.dolt.engine import DoltEngine
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.errors import KnowledgeRefused, SchemaTooNew
from vmrag_link.models import WorkingSet

AS = ("--author", AUTHOR, "--date", DATE)

VERSION_2 = """\
CREATE TABLE `vmrag_meta` (`key` varchar(255) NOT NULL, `value` longtext, PRIMARY KEY (`key`))
CREATE TABLE `collections` (`collection_name` varchar(255) NOT NULL, `kind` varchar(255), `metadata` longtext, \
`embedding_function` varchar(255), `embedding_model` varchar(255), `embedding_dimensions` int, \
`distance` varchar(255), `chunking` longtext, `created_at` varchar(255), `import_base` longtext, \
PRIMARY KEY (`collection_name`))
CREATE TABLE `documents` (`collection_name` varchar(255) NOT NULL, `doc_id` varchar(255) NOT NULL, `title` longtext, \
`content` longtext, `content_hash` varchar(255), `metadata` longtext, `source` longtext, `source_key` longtext, \
`file_type` varchar(255), `last_modified` varchar(255), `created_at` varchar(255), `updated_at` varchar(255), \
PRIMARY KEY (`collection_name`,`doc_id`))
CREATE TABLE `projects` (`project_id` varchar(255) NOT NULL, `name` longtext, `repository_url` longtext, \
`created_at` varchar(255), `metadata` longtext, PRIMARY KEY (`project_id`))
CREATE TABLE `issue_logs` (`log_id` varchar(255) NOT NULL, `project_id` varchar(255), `issue_number` int, \
`title` longtext, `content` longtext, `content_hash` varchar(255), `log_type` varchar(255), \
`created_at` varchar(255), `updated_at` varchar(255), `metadata` longtext, PRIMARY KEY (`log_id`))
CREATE TABLE `knowledge_docs` (`doc_id` varchar(255) NOT NULL, `category` longtext, `tool_name` longtext, \
`tool_version` longtext, `title` longtext, `content` longtext, `content_hash` varchar(255), \
`created_at` varchar(255), `updated_at` varchar(255), `metadata` longtext, PRIMARY KEY (`doc_id`))
"""
"""The tables of version 2, which is released: it never changes."""

STRANGE = {
    "another table": "CREATE TABLE more (a int primary key)",
    "a table whose name ends in a backslash": "CREATE TABLE `more\\` (a int primary key)",
    "a view": "CREATE VIEW more AS SELECT 1 AS a",
    "a view in place of a table": "DROP TABLE projects; CREATE VIEW projects AS SELECT 1 AS project_id",
    "a trigger": "CREATE TRIGGER t BEFORE INSERT ON documents FOR EACH ROW SET NEW.content = 'theirs'",
    "a procedure": "CREATE PROCEDURE p() SELECT 1",
    "a missing table": "DROP TABLE projects",
    "another type": "ALTER TABLE documents MODIFY COLUMN content LONGBLOB",
    "a column more": "ALTER TABLE documents ADD COLUMN more INT",
    "a default": "ALTER TABLE documents MODIFY COLUMN content LONGTEXT DEFAULT ('theirs')",
    "a generated column": "ALTER TABLE documents DROP COLUMN source; ALTER TABLE documents ADD COLUMN source LONGTEXT AS ('x')",
    "a check": "ALTER TABLE documents ADD CONSTRAINT c CHECK (doc_id <> 'zz')",
    "an index": "CREATE INDEX i ON documents(content_hash)",
    "another collation": "ALTER TABLE documents MODIFY COLUMN title LONGTEXT COLLATE utf8mb4_general_ci",
    "ignored tables": "INSERT INTO dolt_ignore VALUES ('documents', true)",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A knowledge base with a branch `main` that holds a document."""
    dolt.require()
    folder = tmp_path_factory.mktemp("dolt") / "kb"
    engine = DoltEngine.create(folder, author=AUTHOR, date=DATE)
    store(engine, "main", document("a"))
    engine.close()
    return folder


@pytest.fixture
def engine(sound: Path, tmp_path: Path) -> Iterator[DoltEngine]:
    opened = DoltEngine.open(dolt.copy_repository(sound, tmp_path / "kb"))
    yield opened
    opened.close()


def _stranger(folder: Path, sql: str) -> str:
    """Commit on `main` as another program does; return the revision."""
    dolt.run(folder, "--use-db", f"{folder.name}/main", "sql", "-q", sql)
    commit = "CALL dolt_commit('-A', '--allow-empty', '-m', 'theirs')"
    dolt.run(folder, "--use-db", f"{folder.name}/main", "sql", "-q", commit)
    engine = DoltEngine.open(folder)
    made = head(engine, "main")
    engine.close()
    return made


def test_tables_of_a_released_version_stay_as_they_are() -> None:
    end = ") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin"
    assert "".join(f"{sql.removesuffix(end)})\n" for sql in schema.TABLES.values()) == VERSION_2


@pytest.mark.parametrize("sql", STRANGE.values(), ids=list(STRANGE))
def test_revision_with_foreign_tables_is_refused_for_reading_and_writing(engine: DoltEngine, sql: str) -> None:
    before = head(engine, "main")
    engine.close()
    made = _stranger(engine.folder, sql)
    assert made != before
    assert engine.find_refusal(made) is not None
    for ask in (
        lambda: list(engine.read_documents(made)),
        lambda: engine.count_documents(WorkingSet("main")),
        lambda: engine.diff(before, made),
        lambda: engine.write("main", Write(put_documents=[document("b")]), expected=made),
        lambda: engine.commit_onto(made, [Write(put_documents=[document("b")])], message="m", author=AUTHOR, date=DATE),
    ):
        with pytest.raises(KnowledgeRefused):
            ask()
    assert head(engine, "main") == made
    assert [document.doc_id for document in engine.read_documents(before)] == ["a"], (
        "sound revisions are read all the same"
    )


def test_revision_of_newer_schema_raises_schema_too_new(engine: DoltEngine) -> None:
    engine.close()
    made = _stranger(engine.folder, "UPDATE vmrag_meta SET value = '99'")
    with pytest.raises(SchemaTooNew) as refused:
        engine.count_documents(made)
    assert refused.value.details["found"] == 99
    assert engine.find_refusal(made) is None


def test_long_texts_that_follow_many_short_ones_are_read(engine: DoltEngine) -> None:
    before = head(engine, "main")
    engine.close()
    engine = DoltEngine.open(engine.folder, limits=Limits(text_bytes=100_000))
    documents = [document(f"{number:02}", "x" * (10 if number < 20 else 60_000)) for number in range(40)]
    engine.write("main", Write(put_documents=documents), expected=before)
    for doc_ids in (
        [stored.doc_id for stored in engine.read_documents(WorkingSet("main"))],
        [change.after.doc_id for change in engine.diff(before, WorkingSet("main")).documents if change.after] + ["a"],
    ):
        assert doc_ids == [document.doc_id for document in documents] + ["a"]
    engine.close()


def test_dolt_user_sees_branches_authors_and_dates(engine: DoltEngine) -> None:
    engine.close()
    said = dolt.run(engine.folder, "log", "-n", "1", "main")
    assert "Author: Ada <ada@example.org>" in said
    assert "Fri Jan 02 03:04:05" in said
    assert (
        dolt.run(engine.folder, "sql", "-r", "csv", "-q", "SELECT doc_id, content FROM documents AS OF 'main'")
        == "doc_id,content\na,text\n"
    )
    assert ROOT_BRANCH in dolt.run(engine.folder, "branch")
    assert root(engine) != head(engine, "main")
