"""Knowledge bases of an older version of the schema: read as they are, brought to the next one by
the write that needs it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.engines import AUTHOR, DATE, commit, document, guide, head, knowledge, log, put, root, store
from tests.support.formerly import entries, program, version
from tests.support.long import examples
from vmrag_link.engines import tables
from vmrag_link.engines.base import SCHEMA_VERSION, Write
from vmrag_link.engines.doltlite import schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.engines.folder import DOLTLITE_FILE as FILE_NAME
from vmrag_link.engines.limits import USUAL_LIMITS
from vmrag_link.errors import ContentRefused, KnowledgeRefused, SchemaTooNew
from vmrag_link.merging.choices import Choice, Decisions
from vmrag_link.merging.conflicts import decide_all
from vmrag_link.merging.revisions import merge_revisions
from vmrag_link.models import (
    Collection,
    Difference,
    Document,
    Project,
    WorkingSet,
    encode_canonical_json,
)
from vmrag_link.ops import adopt


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DoltliteEngine]:
    """A knowledge base of version 1, with the branch `main` that holds the collection `guide` and a
    document.
    """
    with program(1):
        made = DoltliteEngine.create(tmp_path / "kb", author=AUTHOR, date=DATE)
        made.create_branch("main", root(made))
        made.write("main", Write(put_collections=[guide(), Collection("other")]), expected=root(made))
        store(made, "main", document("first"))
    yield made
    made.close()


def project(project_id: str = "vmrag", **fields: str) -> Project:
    return Project(project_id, **fields)


Entry = Project | Document
"""A row of a table that version 2 has first."""


def rows_of(*put: Entry, remove: tuple[Entry, ...] = ()) -> dict[str, list]:
    """Return arguments of `Write` that write and remove entries."""
    return {
        "put_projects": [row for row in put if isinstance(row, Project)],
        "put_documents": [row for row in put if isinstance(row, Document)],
        "remove_projects": [row.key for row in remove if isinstance(row, Project)],
        "remove_documents": [item.key for item in remove if isinstance(item, Document)],
    }


def changed(difference: Difference) -> list:
    """The changes of entries."""
    logs = [document for document in difference.documents if document.key[0].startswith(("issues_", "knowledge_"))]
    return [*difference.projects, *logs]


def write(engine: DoltliteEngine, branch: str, **rows) -> str:
    engine.write(branch, Write(**rows), expected=head(engine, branch))
    return commit(engine, branch)


def file(engine: DoltliteEngine) -> bytes:
    return (engine.folder / FILE_NAME).read_bytes()


# -- one version after the other


@pytest.mark.parametrize("newer", range(2, SCHEMA_VERSION + 1))
def test_upgrade_creates_exactly_the_tables_of_a_new_knowledge_base(newer: int, tmp_path: Path) -> None:
    with program(newer - 1):
        DoltliteEngine.create(tmp_path / "upgraded", author=AUTHOR, date=DATE).close()
    with Connection(tmp_path / "upgraded" / FILE_NAME, access="write") as connection, connection.transaction():
        assert schema.upgrade_tables(connection, newer) == newer
        schema.require_known_schema(connection, "it")
        assert schema.read_version(connection) == newer


def test_table_s_columns_are_the_fields_of_its_records() -> None:
    for table in tables.TABLES:
        made = next(item[3] for item in schema.OBJECTS[SCHEMA_VERSION] if item[1] == table.name)
        words = made.partition("(")[2].rpartition(")")[0].split(",")
        columns = [word.split()[0] for word in words if len(word.split()) == 2 or "PRIMARY KEY" in word]
        assert (
            tuple(column for column in columns if column not in ("PRIMARY", "doc_id)"))[: len(table.columns)]
            == table.columns
        )


def test_reading_and_compatible_writes_upgrade_nothing(engine: DoltliteEngine) -> None:
    before = file(engine)
    result = DoltliteEngine.open(engine.folder)
    assert [collection.import_base for collection in result.list_collections(head(result, "main"))] == ["", ""]
    assert entries(result, head(result, "main")) == []
    assert result.diff(root(result), head(result, "main")).projects == ()
    result.close()
    assert file(engine) == before
    at = write(engine, "main", put_collections=[guide(kind="library")], put_documents=[document("second")])
    with program(1):
        assert (version(engine, at), engine.count_documents(at)) == (1, 2)
        assert [collection.kind for collection in engine.list_collections(at)] == ["library", "chroma"]
    write(engine, "main", remove_projects=["nobody"], remove_documents=[("guide", "second"), ("issues_a", "b")])
    assert version(engine, head(engine, "main")) == 1


@pytest.mark.parametrize(
    "rows",
    [
        {"put_collections": [guide(import_base="docs")]},
        rows_of(project()),
        rows_of(log("a", issue_number=2**40)),
        rows_of(knowledge("b")),
    ],
    ids=["import base", "project", "issue log", "knowledge doc"],
)
@pytest.mark.sample(2)
def test_first_write_that_needs_it_upgrades_and_changes_nothing_else(engine: DoltliteEngine, rows) -> None:
    before = head(engine, "main")
    second = document("second")
    engine.write("main", Write(**(rows | {"put_documents": [second, *rows.get("put_documents", ())]})), expected=before)
    assert version(engine, "main") == 2
    assert version(engine, before) == 1, "the working set only"
    expected = (
        [collection.key for collection in rows.get("put_collections", ())],
        [item.key for item in (*rows.get("put_projects", ()), *rows.get("put_documents", ()))],
    )
    for old, new in ((before, WorkingSet("main")), (before, commit(engine, "main"))):
        result = engine.diff(old, new)
        assert (
            [collection.key for collection in result.collections],
            [change.key for change in changed(result)],
        ) == expected
        assert ("guide", "second") in [document.key for document in result.documents]
        assert engine.count_changes(old, new).added == len(result.documents)
        back = engine.diff(new, old)
        assert [collection.key for collection in (*back.collections, *changed(back))] == [*expected[0], *expected[1]]
    stored = {
        collection.key: collection
        for collection in (*engine.list_collections(head(engine, "main")), *entries(engine, head(engine, "main")))
    }
    assert engine.count_documents(head(engine, "main")) == len(list(engine.read_headers(head(engine, "main"))))
    for row in (*rows.get("put_collections", ()), *rows.get("put_projects", ()), *rows.get("put_documents", ())):
        assert stored[row.key] == row
    engine.collect_garbage()
    assert engine.find_damage() == ""


def test_write_that_fails_leaves_the_older_version(engine: DoltliteEngine) -> None:
    before = head(engine, "main")
    with pytest.raises(ContentRefused):
        engine.write("main", Write(put_projects=[project(), project("b", name="a\0b")]), expected=before)
    branch = engine.find_branch("main")
    assert branch
    assert (version(engine, "main"), branch.dirty) == (1, False)


def test_upgrade_that_is_taken_back_leaves_the_older_version(engine: DoltliteEngine) -> None:
    before = head(engine, "main")
    engine.write("main", Write(put_projects=[project()]), expected=before)
    kept = engine.commit_onto(before, [Write(put_projects=[project()])], message="kept", author=AUTHOR, date=DATE)
    engine.discard_saved_rows("main", kept=kept, expected=before)
    assert (version(engine, "main"), version(engine, kept)) == (1, 2)


# -- two versions together


def test_equal_upgrades_in_clones_are_one_revision_and_others_merge(engine: DoltliteEngine, tmp_path: Path) -> None:
    base = head(engine, "main")
    url = f"file://{tmp_path / 'remote'}"
    engine.push("there", url, {"vmrag_root": root(engine), "main": base})
    clone = DoltliteEngine.clone(tmp_path / "clone", "there", url)
    clone.create_branch("main", base)
    same = [
        member.commit_onto(base, [Write(put_projects=[project()])], message="same", author=AUTHOR, date=DATE)
        for member in (engine, clone)
    ]
    assert same[0] == same[1]
    ours = write(engine, "main", **rows_of(project(), log("a")), put_collections=[guide(import_base=".")])
    theirs = write(clone, "main", put_projects=[project()], put_documents=[document("second"), log("b")])
    clone.push("there", url, {"theirs": theirs})
    engine.push("there", url, {"main": ours})
    engine.fetch("there", url)
    clone.fetch("there", url)
    results = []
    for member in (engine, clone):
        outcome = merge_revisions(member, base=base, ours=ours, theirs=theirs, joins=True)
        assert outcome.conflicts == ()
        assert outcome.revision is not None
        results.append(outcome.revision)
        assert [row.key for row in entries(member, outcome.revision)] == [
            "vmrag",
            ("issues_vmrag", "a"),
            ("issues_vmrag", "b"),
        ]
        assert [row.import_base for row in member.list_collections(outcome.revision)] == [".", ""]
        assert [row.doc_id for row in member.read_documents(outcome.revision)] == ["first", "second", "a", "b"]
        assert member.read_revision(outcome.revision).parents == (ours, theirs)
        assert member.find_damage() == ""
    assert results[0] == results[1]
    clone.close()


State = tuple[str, dict[str, str], dict[str, str]]
"""The import base of `guide`, texts by document, and texts by issue log."""

names = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["one", "two", "three"]), max_size=3)
states = st.tuples(st.sampled_from(["", "", ".", "docs"]), names, st.one_of(st.just({}), names))


def revision(engine: DoltliteEngine, state: State, onto: str) -> str:
    """A revision that holds exactly this, in the version that its parent has or that it needs."""
    base, documents, logs = state
    rows = Write(
        put_collections=[guide(import_base=base)],
        remove_documents=[header.key for header in engine.read_headers(onto)],
        put_documents=[
            *(document(name, text) for name, text in documents.items()),
            *(log(name, text) for name, text in logs.items()),
        ],
    )
    return engine.commit_onto(onto, [rows], message="state", author=AUTHOR, date=DATE)


def state(engine: DoltliteEngine, at: str) -> State:
    result = {collection.name: collection for collection in engine.list_collections(at)}
    return (
        result["guide"].import_base,
        *(
            {document.doc_id: document.content for document in engine.read_documents(at, collection=name)}
            for name in ("guide", "issues_vmrag")
        ),
    )


def flat(state: State) -> dict[str, str]:
    base, documents, logs = state
    return (
        {"guide/": base}
        | {f"guide/{name}": text for name, text in documents.items()}
        | {f"issues_vmrag/{name}": text for name, text in logs.items()}
    )


def expected(base: State, ours: State, theirs: State) -> dict[str, str] | set[str]:
    """Return the result, or the ids in conflict."""
    before, our_rows, their_rows = flat(base), flat(ours), flat(theirs)
    result, conflicts = {}, set()
    for name in before.keys() | our_rows.keys() | their_rows.keys():
        if their_rows.get(name) in (our_rows.get(name), before.get(name)):
            text = our_rows.get(name)
        elif our_rows.get(name) == before.get(name):
            text = their_rows.get(name)
        else:
            conflicts.add(name)
            continue
        if text is not None:
            result[name] = text
    return conflicts or result


@settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(states, states, states, st.booleans())
def test_merge_of_any_versions_matches_set_operations(
    engine: DoltliteEngine, base: State, ours: State, theirs: State, joins: bool
) -> None:
    at_base = revision(engine, base, head(engine, "main"))
    at_ours, at_theirs = revision(engine, ours, at_base), revision(engine, theirs, at_base)
    for old, new, of_old, of_new in ((at_ours, at_theirs, ours, theirs), (at_theirs, at_base, theirs, base)):
        result = engine.diff(old, new)
        names_changed = {"/".join(document.key) for document in result.documents}
        names_changed |= {f"{collection.key}/" for collection in result.collections}
        our_rows, their_rows = flat(of_old), flat(of_new)
        assert names_changed == {
            name for name in our_rows.keys() | their_rows.keys() if our_rows.get(name) != their_rows.get(name)
        }
    outcome = merge_revisions(engine, base=at_base, ours=at_ours, theirs=at_theirs, joins=joins)
    expected_rows = expected(base, ours, theirs)
    if outcome.revision is None:
        assert isinstance(expected_rows, set)
        if "guide/" in expected_rows:  # what is in a collection is merged when its settings are decided
            expected_rows = {text for text in expected_rows if text == "guide/" or not text.startswith("guide/")}
        assert {conflict.id for conflict in outcome.conflicts} == expected_rows
        for side in ("ours", "theirs"):
            decisions: dict[str, Mapping[str, Choice]] = {}
            while outcome.conflicts:
                decisions |= decide_all(outcome.conflicts, Choice(side))
                outcome = merge_revisions(
                    engine, base=at_base, ours=at_ours, theirs=at_theirs, joins=joins, decisions=decisions
                )
            assert outcome.revision is not None
            chosen, merged_rows = flat(ours if side == "ours" else theirs), flat(state(engine, outcome.revision))
            assert all(merged_rows.get(name) == chosen.get(name) for name in decisions)
            outcome = merge_revisions(engine, base=at_base, ours=at_ours, theirs=at_theirs, joins=joins)
    else:
        assert flat(state(engine, outcome.revision)) == expected_rows
        assert version(engine, outcome.revision) <= max(version(engine, item) for item in (at_ours, at_theirs))
    assert engine.find_refusal(outcome.revision or at_ours) is None


def test_uncommitted_rows_of_two_branches_are_compared_across_versions(engine: DoltliteEngine) -> None:
    base = head(engine, "main")
    for name in ("new", "newer"):
        engine.create_branch(name, base)
    put(engine, "main", document("second"))
    engine.write("new", Write(put_documents=[log("a"), log("b")]), expected=base)
    engine.write("newer", Write(put_documents=[log("b"), log("c", "other")]), expected=base)
    places = [base, WorkingSet("main"), WorkingSet("new"), WorkingSet("newer")]
    for old, new in itertools.product(places, places):
        before, after = (dict.fromkeys(entries(engine, revision)) for revision in (old, new))
        result = changed(engine.diff(old, new))
        gone = {name.header for name in before.keys() - after.keys() if isinstance(name, Document)}
        assert {item.before for item in result if item.before} == gone
        assert {item.after for item in result if item.after} == after.keys() - before.keys()


# -- conflicts in rows of the new tables


def decided(engine: DoltliteEngine, base: str, ours: str, theirs: str, decisions: Decisions | None = None):
    return merge_revisions(engine, base=base, ours=ours, theirs=theirs, joins=True, decisions=decisions)


def test_entry_is_merged_field_by_field_and_its_later_time_stays(engine: DoltliteEngine) -> None:
    base = write(engine, "main", put_documents=[log("a", updated_at="2026-01-01T00:00:00Z")])
    ours = revised(engine, base, log("a", "new text", updated_at="2026-01-03T00:00:00Z"))
    theirs = revised(engine, base, log("a", issue_number=7, updated_at="2026-01-02T00:00:00Z"))
    outcome = decided(engine, base, ours, theirs)
    assert outcome.revision is not None
    assert entries(engine, outcome.revision) == [
        log("a", "new text", issue_number=7, updated_at="2026-01-03T00:00:00Z")
    ]
    later = revised(engine, base, log("a", updated_at="2026-01-05T00:00:00Z"))
    assert engine.diff(base, later).is_empty, "a time alone is no change"


def revised(engine: DoltliteEngine, onto: str, *rows: Entry, remove: tuple[Entry, ...] = ()) -> str:
    return engine.commit_onto(
        onto, [Write(**rows_of(*rows, remove=remove))], message="revised", author=AUTHOR, date=DATE
    )


@pytest.mark.parametrize(
    ("base", "one", "other", "part"),
    [
        (log("a"), log("a", issue_number=2), log("a", issue_number=3), "metadata.issue_number"),
        (log("a"), log("a", "x"), log("a", "y"), "content"),
        (knowledge("a"), knowledge("a", tool_version="3"), knowledge("a", tool_version="4"), "metadata.tool_version"),
        (knowledge("a"), knowledge("a", tool_name="b"), knowledge("a", tool_name="c"), "metadata.tool_name"),
        (project("a"), project("a", repository_url="b"), project("a", repository_url="c"), "repository_url"),
    ],
)
def test_conflict_in_part_of_entry_is_decided_like_a_document(
    engine: DoltliteEngine, base: Entry, one: Entry, other: Entry, part: str
) -> None:
    at = write(engine, "main", **rows_of(base))
    ours, theirs = revised(engine, at, one, remove=(base,)), revised(engine, at, other, remove=(base,))
    outcome = decided(engine, at, ours, theirs)
    (conflict,) = outcome.conflicts
    assert conflict.id == (f"projects:{base.key}" if isinstance(base, Project) else "/".join(base.key))
    assert part in (*conflict.fields, *(f"metadata.{key}" for key in conflict.keys))
    for take, expected_row in (("ours", one), ("theirs", other)):
        made = decided(engine, at, ours, theirs, decide_all(outcome.conflicts, Choice(take)))
        assert made.revision is not None
        assert entries(engine, made.revision) == [expected_row]
    neither = decided(engine, at, ours, theirs, decide_all(outcome.conflicts, Choice("neither")))
    assert neither.revision is not None
    (result,) = entries(engine, neither.revision)
    assert result not in (one, other)


def test_document_moved_on_one_side_and_edited_on_other_merges(engine: DoltliteEngine) -> None:
    base = write(engine, "main", put_documents=[knowledge("a"), knowledge("b")])
    moved = knowledge("a", tool_name="jj")
    ours = revised(engine, base, knowledge("a", "new text"))
    theirs = revised(engine, base, moved, remove=(knowledge("a"),))
    for left_side, right_side in ((ours, theirs), (theirs, ours)):
        outcome = decided(engine, base, left_side, right_side)
        assert outcome.revision is not None
        assert entries(engine, outcome.revision) == [knowledge("b"), knowledge("a", "new text", tool_name="jj")]
    result = engine.diff(base, theirs)
    assert [(document.kind, document.key) for document in result.documents] == [
        ("removed", ("knowledge_git", "a")),
        ("added", ("knowledge_jj", "a")),
    ]
    gone = revised(engine, base, remove=(knowledge("a"),))
    (conflict,) = decided(engine, base, gone, theirs).conflicts
    assert (conflict.id, conflict.is_whole) == ("knowledge_git/a", True)


@pytest.mark.parametrize("row", [log("a"), knowledge("a"), project("a")])
def test_entry_removed_on_one_side_and_changed_on_other_conflicts(engine: DoltliteEngine, row: Entry) -> None:
    base = write(engine, "main", **rows_of(row))
    changed_row = _with_metadata(row)
    ours, theirs = revised(engine, base, changed_row), revised(engine, base, remove=(row,))
    for left_side, right_side, kept in ((ours, theirs, "ours"), (theirs, ours, "theirs")):
        outcome = decided(engine, base, left_side, right_side)
        assert [conflict.is_whole for conflict in outcome.conflicts] == [True]
        for take in ("ours", "theirs"):
            made = decided(engine, base, left_side, right_side, decide_all(outcome.conflicts, Choice(take)))
            assert made.revision is not None
            assert entries(engine, made.revision) == ([changed_row] if take == kept else [])


def _with_metadata(row: Entry) -> Entry:
    return msgspec.structs.replace(row, metadata=encode_canonical_json(json.loads(row.metadata) | {"a": 1}))


# -- outdated programs, and foreign rows


def test_older_program_rejects_only_newer_revisions(engine: DoltliteEngine, tmp_path: Path) -> None:
    old = head(engine, "main")
    engine.create_branch("new", old)
    new = write(engine, "new", put_projects=[project()])
    before = engine.list_branches()
    with program(1):
        for ask in (
            lambda: engine.list_collections(new),
            lambda: list(engine.read_documents(new)),
            lambda: engine.count_documents(new),
            lambda: engine.diff(old, new),
            lambda: engine.diff_headers(new, old),
            lambda: engine.read_document_history(new, "handbook", "x"),
            lambda: engine.count_changes(new, old),
            lambda: put(engine, "new", document("x")),
            lambda: engine.commit_onto(
                new, [Write(put_documents=[document("x")])], message="m", author=AUTHOR, date=DATE
            ),
            lambda: engine.commit_onto(old, [], joining=new, message="m", author=AUTHOR, date=DATE),
            lambda: merge_revisions(engine, base=old, ours=old, theirs=new, joins=True, working=WorkingSet("main")),
            lambda: engine.build_keep_head(None, new, reason="it is pinned"),
        ):
            with pytest.raises(
                SchemaTooNew, match=r"has schema version 2; this program supports versions up to 1"
            ) as caught:
                ask()
            assert "pip install --upgrade" in caught.value.hint
        assert engine.find_refusal(new) is None, "it is no stranger's: whatever reads it is told"
        assert engine.list_branches() == before
        assert engine.count_documents(store(engine, "main", document("second"))) == 2
        url = f"file://{tmp_path / 'remote'}"
        engine.push("there", url, {"vmrag_root": root(engine), "main": old, "new": new})
        clone = DoltliteEngine.clone(tmp_path / "clone", "there", url)
        assert (clone.count_documents(old), clone.has_revision(new)) == (1, True)
        with pytest.raises(SchemaTooNew):
            engine.vet_revisions(
                f"file://{tmp_path / 'remote'}",
                [new],
                known_heads=[old],
                into=tmp_path / "vetted",
                limits=USUAL_LIMITS,
                check_row=lambda _: None,
            )
    assert entries(clone, new) == [project()]
    clone.close()


def test_older_program_clones_nothing_that_began_in_a_newer_version(tmp_path: Path) -> None:
    made = DoltliteEngine.create(tmp_path / "kb", author=AUTHOR, date=DATE)
    url = pushed(made, f"file://{tmp_path / 'remote'}")
    made.close()
    with program(1), pytest.raises(SchemaTooNew, match="schema version 2"):
        DoltliteEngine.clone(tmp_path / "clone", "there", url)


@pytest.mark.parametrize(
    "statements",
    [
        ("UPDATE vmrag_meta SET value = '1' WHERE key = 'schema_version'",),
        ("DROP TABLE issue_logs",),
        ("ALTER TABLE collections ADD COLUMN another LONGTEXT",),
        ("UPDATE vmrag_meta SET value = '\u0662' WHERE key = 'schema_version'",),
        ("UPDATE vmrag_meta SET value = '0' WHERE key = 'schema_version'",),
        ("UPDATE vmrag_meta SET value = x'32' WHERE key = 'schema_version'",),
        (f"UPDATE vmrag_meta SET value = '{'9' * 5000}' WHERE key = 'schema_version'",),
        ("DELETE FROM vmrag_meta",),
    ],
    ids=["says 1", "lacks one", "one more", "other digits", "0", "bytes", "endless", "says nothing"],
)
def test_tables_that_contradict_their_schema_version_are_refused(
    engine: DoltliteEngine, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    old = head(engine, "main")
    write(engine, "main", put_projects=[project()])
    with Connection(engine.folder / FILE_NAME, at="main") as connection, connection.transaction():
        for statement in statements:
            connection.execute(statement)
        bad = schema.commit(connection, "odd", AUTHOR, DATE)
    assert isinstance(engine.find_refusal(bad), KnowledgeRefused)
    with pytest.raises(KnowledgeRefused):
        engine.list_collections(bad)
    url = f"file://{tmp_path / 'remote'}"
    other = DoltliteEngine.clone(tmp_path / "clone", "there", pushed(engine, url, main=old))
    pushed(engine, url, main=bad)
    with pytest.raises(KnowledgeRefused):
        other.fetch("there", url)
    assert not other.has_revision(bad)
    other.close()


def pushed(engine: DoltliteEngine, url: str, **heads: str) -> str:
    """The URL, after a push; the engine itself refuses nothing of its own."""
    engine.push("there", url, {"vmrag_root": root(engine), **heads})
    return url


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE issue_logs SET issue_number = x'37'", "wrong types"),
        ("UPDATE projects SET name = NULL", "wrong types"),
        ("UPDATE projects SET metadata = '[]'", "metadata"),
        ("UPDATE issue_logs SET content = 'other'", "content_hash"),
        ("UPDATE collections SET import_base = x'37'", "wrong types"),
        (
            (
                "INSERT INTO documents SELECT 'issues_x', 'a', title, content, content_hash, '{}', '', '', '', '', '', ''"
                " FROM documents LIMIT 1"
            ),
            "same name as a document",
        ),
    ],
)
@pytest.mark.sample(2)
def test_fetch_refuses_rows_that_no_vmrag_command_writes(
    engine: DoltliteEngine, tmp_path: Path, statement: str, why: str
) -> None:
    good = write(engine, "main", **rows_of(project(), log("a")))
    url = f"file://{tmp_path / 'remote'}"
    other = DoltliteEngine.clone(tmp_path / "clone", "there", pushed(engine, url, main=good))
    with Connection(engine.folder / FILE_NAME, at="main") as connection, connection.transaction():
        connection.execute(statement)
        bad = schema.commit(connection, "odd", AUTHOR, DATE)
    pushed(engine, url, main=bad)
    with pytest.raises(KnowledgeRefused, match=why):
        other.fetch("there", url)
    with pytest.raises(KnowledgeRefused):
        other.vet_revisions(
            f"file://{tmp_path / 'remote'}",
            [bad],
            known_heads=[good],
            into=tmp_path / "vetted",
            limits=USUAL_LIMITS,
            check_row=adopt.check_row,
        )
    other.close()


def test_anchor_holds_revisions_of_both_versions(engine: DoltliteEngine) -> None:
    old = head(engine, "main")
    new = write(engine, "main", put_projects=[project()])
    older = engine.commit_onto(old, [Write(put_documents=[document("x")])], message="m", author=AUTHOR, date=DATE)
    engine.move_branch("main", root(engine), expected=new)
    engine.collect_garbage()
    assert entries(engine, new) == [project()]
    assert (engine.count_documents(old), engine.count_documents(older)) == (1, 2)
