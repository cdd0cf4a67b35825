"""The contract of `engines/base.py`, sentence by sentence, against every engine."""

from __future__ import annotations

import random
import shutil
import tracemalloc
from pathlib import Path

import pytest

from tests.support import engines as support
from tests.support.engines import AUTHOR, DATE, Engines, commit, document, guide, head, knowledge, log, put, root, store
from tests.support.long import examples
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.own_branches import KEEP_BRANCH, LINKS_BRANCH, ROOT_BRANCH
from vmrag_link.errors import (
    AlreadyInitialized,
    BranchExists,
    BranchMissing,
    Busy,
    ContentRefused,
    EngineFailed,
    KnowledgeMoved,
    NameInvalid,
    NoChanges,
    NotInitialized,
    RevisionMissing,
    Uncommitted,
)
from vmrag_link.models import (
    ChangeCounts,
    Chunking,
    Collection,
    Document,
    Link,
    Project,
    WorkingSet,
    content_hash,
)

engine, engines = support.engine, support.engines

NO_REVISION = [
    "'; DROP TABLE documents",
    "main",
    "vmrag_root",
    "0" * 40,
    "f" * 40,
    "HEAD",
    "WORKING",
    "",
    "\0",
    "é",
    "🙂",
]
TEXTS = {
    "empty": "",
    "backslashes": r"C:\new\table \\ \0 \x00 \u0000",
    "quotes": "it's \"quoted\" `so` '' ; -- /* */",
    "line ends": "a\r\nb\nc\rd\n\n",
    "astral": "🙂 \U0001d4b3 é é \u200b\ufeff\u2028 \U0010ffff",
    "controls": "".join(map(chr, range(1, 32))) + "\x7f\x85",
    "placeholders": "? ?1 :a @b $c %s %(x)s {0}",
    "five megabytes": "0123456789abcdeф" * (5 * 2**16),
}


# -- creating and opening


def test_new_knowledge_base_has_one_branch_at_an_empty_revision(engine: Engine) -> None:
    (branch,) = engine.list_branches()
    assert branch.name == ROOT_BRANCH
    assert not branch.dirty
    assert engine.list_collections(branch.head) == []
    assert list(engine.read_documents(branch.head)) == []
    info = engine.read_revision(branch.head)
    assert (info.author, info.date) == (AUTHOR, DATE)


def test_creating_twice_is_refused_and_changes_nothing(engines: Engines, engine: Engine) -> None:
    revision = store(engine, "main", document("a"))
    with pytest.raises(AlreadyInitialized):
        engines.create(engine.folder)
    assert engine.has_revision(revision)


def test_opening_nothing_is_not_initialized_and_creates_nothing(engines: Engines, tmp_path: Path) -> None:
    for folder in (tmp_path / "absent", tmp_path):
        before = sorted(tmp_path.iterdir())
        with pytest.raises(NotInitialized):
            engines.open(folder)
        assert sorted(tmp_path.iterdir()) == before


def test_written_documents_exist_after_reopening(engines: Engines, engine: Engine) -> None:
    revision = store(engine, "main", document("a"))
    put(engine, "main", document("b"))
    engine.close()
    again = engines.open(engine.folder)
    assert [d.doc_id for d in again.read_documents(revision)] == ["a"]
    assert [d.doc_id for d in again.read_documents(WorkingSet("main"))] == ["a", "b"]
    again.close()


# -- content


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_text_survives_exactly(engine: Engine, text: str) -> None:
    written = document("it's a \\ 'name' 🙂", text, title=text[:200], source=text[:200], metadata='{"k":"\\"ü\\""}')
    revision = store(engine, "main", written)
    assert list(engine.read_documents(revision)) == [written]
    assert list(engine.read_documents(WorkingSet("main"))) == [written]
    assert engine.find_document(revision, written.collection, written.doc_id) == written
    (change,) = engine.diff(root(engine), revision).documents
    assert change.after == written


def test_every_field_of_both_tables_survives(engine: Engine) -> None:
    collection = Collection("guide", "system", '{"a":1}', "f", "m", 256, "ip", Chunking("characters", 9, 2), "2026")
    fields = {name: f"{name} ü" for name in Document.__struct_fields__ if name != "table"}
    derived = {"content_hash": content_hash(fields["content"]), "metadata": '{"ü":1}'}
    written = Document(**{**fields, **derived, "collection": "guide"})
    engine.create_branch("main", root(engine))
    engine.write("main", Write([collection], (), [written]), expected=root(engine))
    assert engine.list_collections(WorkingSet("main")) == [collection]
    assert list(engine.read_documents(WorkingSet("main"))) == [written]
    assert list(engine.read_headers(WorkingSet("main"))) == [written.header]


@pytest.mark.parametrize("text", ["a\0b", "\0", "a\ud800b", "\udfff"], ids=["nul", "only nul", "high", "low"])
@pytest.mark.parametrize("field", ["content", "title", "metadata", "doc_id", "collection", "source"])
def test_nul_and_lone_surrogates_are_refused_before_anything_is_written(engine: Engine, field: str, text: str) -> None:
    engine.create_branch("main", root(engine))
    fields = {"collection": "guide", "doc_id": "z", "title": "", "content": "", "content_hash": "", field: text}
    with pytest.raises(ContentRefused) as refused:
        put(engine, "main", document("a"), Document(**fields | ({"title": text} if field == "content" else {})))
    assert field in refused.value.message or field in ("doc_id", "collection")
    with pytest.raises(ContentRefused):
        engine.write("main", Write([guide(metadata=text)], (), [document("a")]), expected=root(engine))
    assert engine.count_documents(WorkingSet("main")) == 0
    assert not engine.list_branches()[0].dirty


def test_empty_or_overlong_name_is_rejected(engine: Engine) -> None:
    engine.create_branch("main", root(engine))
    for doc_id in ("", "x" * 256):
        with pytest.raises(ContentRefused):
            put(engine, "main", document(doc_id))
    put(engine, "main", document("é" * 255))
    assert engine.count_documents(WorkingSet("main")) == 1


def test_every_kind_of_row_is_stored_and_compared(engine: Engine) -> None:
    store(engine, "main", document("a"))
    before = head(engine, "main")
    rows = Write(
        put_collections=[Collection("guide", import_base="docs")],
        put_projects=[Project("p", "Name")],
        put_documents=[log("i", issue_number=7), knowledge("k"), document("a", "new")],
    )
    engine.write("main", rows, expected=before)
    after = engine.commit("main", message="m", author=AUTHOR, date=DATE, expected=before)
    assert list(engine.list_collections(after)) == list(rows.put_collections)
    assert list(engine.read_projects(after)) == rows.put_projects
    documents = list(engine.read_documents(after))
    assert documents == sorted(rows.put_documents, key=lambda put_document: put_document.key)
    assert list(engine.read_headers(after)) == [document.header for document in documents]
    assert [engine.find_document(after, *document.key) for document in documents] == documents
    counts = (
        engine.count_documents(after),
        engine.count_documents(after, collection="issues_vmrag"),
        engine.count_changes(before, after),
    )
    assert counts == (3, 1, ChangeCounts(added=2, modified=1))
    assert [document.after for document in engine.diff(before, after).documents] == documents
    assert [project.after for project in engine.diff(before, after).projects] == rows.put_projects
    gone = Write(remove_documents=[document.key for document in documents[1:]], remove_collections=["issues_vmrag"])
    engine.write("main", gone, expected=after)
    assert [document.key[1] for document in engine.read_documents(WorkingSet("main"))] == ["a"]
    back = Write(put_documents=[log("i", "other"), knowledge("k", tool_name="jj")])
    engine.write("main", back, expected=after)
    documents = engine.diff(after, WorkingSet("main")).documents
    assert [(document.kind, *document.key) for document in documents] == [
        ("modified", "issues_vmrag", "i"),
        ("removed", "knowledge_git", "k"),
        ("added", "knowledge_jj", "k"),
    ]
    assert engine.count_changes(after, WorkingSet("main")) == ChangeCounts(added=1, modified=1, removed=1)


def test_names_that_differ_only_in_case_are_different_documents(engine: Engine) -> None:
    revision = store(engine, "main", document("Readme"), document("README"), document("readme"), document("readme "))
    assert engine.count_documents(revision) == 4


# -- writing


def test_putting_replaces_the_whole_row(engine: Engine) -> None:
    store(engine, "main", document("a", "old", source="somewhere", metadata='{"k":1}'))
    revision = store(engine, "main", document("a", "new"))
    assert engine.find_document(revision, "guide", "a") == document("a", "new")


def test_removing_a_collection_removes_its_documents_only(engine: Engine) -> None:
    store(engine, "main", document("a"), document("a", collection="other"))
    engine.write("main", Write([guide(), Collection("other")]), expected=head(engine, "main"))
    engine.write("main", Write(remove_collections=["guide"]), expected=head(engine, "main"))
    assert [c.name for c in engine.list_collections(WorkingSet("main"))] == ["other"]
    assert [d.key for d in engine.read_documents(WorkingSet("main"))] == [("other", "a")]


def test_removing_documents_removes_exactly_them(engine: Engine) -> None:
    store(engine, "main", document("a"), document("b"))
    engine.write("main", Write(remove_documents=[("guide", "a"), ("guide", "absent")]), expected=head(engine, "main"))
    assert [d.doc_id for d in engine.read_documents(WorkingSet("main"))] == ["b"]


@pytest.mark.parametrize("odd", ["'", '"', "\\", "🙂", "é", "x y", "["])
def test_documents_are_found_by_their_ids(engine: Engine, odd: str) -> None:
    revision = store(engine, "main", document("a"), document("b", "text of b"), document(f"c{odd}"))
    ids = [f"c{odd}", "absent", "b", "b"]
    assert [header.doc_id for header in engine.read_headers(revision, collection="guide", ids=ids)] == ["b", f"c{odd}"]
    assert [document.content for document in engine.read_documents(revision, ids={"b"})] == ["text of b"]
    assert list(engine.read_documents(revision, collection="guide", ids=[])) == []
    assert list(engine.read_headers(revision, collection="elsewhere", ids=["b"])) == []


def test_ids_are_found_by_how_they_begin(engine: Engine) -> None:
    ids = ["a", "a_", "a_1", "a_10", "a_9é", "a_\ud7ff", "a_\ud7ffx", "a_\ue000", "a`", "A_1", "b%", "b%1", "bx"]
    revision = store(engine, "main", *map(document, ids), document("a_2", collection="other"))
    assert engine.list_ids(revision, "guide", prefix="a_") == [
        "a_",
        "a_1",
        "a_10",
        "a_9é",
        "a_\ud7ff",
        "a_\ud7ffx",
        "a_\ue000",
    ]
    assert engine.list_ids(revision, "guide", prefix="a_\ud7ff") == ["a_\ud7ff", "a_\ud7ffx"]
    assert engine.list_ids(revision, "guide", prefix="b%") == ["b%", "b%1"]
    assert engine.list_ids(revision, "absent", prefix="a") == []
    engine.write("main", Write(put_documents=[document("a_3")], remove_documents=[("guide", "a_1")]), expected=revision)
    assert engine.list_ids(WorkingSet("main"), "guide", prefix="a_")[:3] == ["a_", "a_10", "a_3"]


def test_list_sources_returns_documents_that_have_a_source(engine: Engine) -> None:
    sources = {"b": "docs/b", "a": "docs/a", "c": "elsewhere/c", "d": "", "é": "docs/é"}
    rows = [document(doc_id, source=source) for doc_id, source in sources.items()]
    revision = store(engine, "main", *rows, document("b", collection="other", source="x"))
    expected = [("a", "docs/a"), ("b", "docs/b"), ("c", "elsewhere/c"), ("é", "docs/é")]
    assert engine.list_sources(revision, "guide") == expected
    assert engine.list_sources(revision, "absent") == []


def test_stamp_shows_whether_anything_was_written(engines: Engines, engine: Engine) -> None:
    revision = store(engine, "main", document("a"))
    before = engine.read_stamp()
    other = engines.open(engine.folder)
    assert list(other.read_documents(revision))
    assert list(engine.read_headers(WorkingSet("main")))
    assert engine.read_stamp() == other.read_stamp() == before
    put(other, "main", document("a", "another text"))
    assert engine.read_stamp() != before
    other.close()


def test_write_that_fails_half_way_leaves_nothing(engine: Engine) -> None:
    store(engine, "main", document("a"))

    def source():
        yield document("b")
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError):
        engine.write(
            "main", Write(put_documents=source(), remove_documents=[("guide", "a")]), expected=head(engine, "main")
        )
    assert [d.doc_id for d in engine.read_documents(WorkingSet("main"))] == ["a"]
    put(engine, "main", document("c"))
    assert engine.count_documents(WorkingSet("main")) == 2


def test_write_that_expects_another_head_is_refused(engine: Engine) -> None:
    first = store(engine, "main", document("a"))
    second = store(engine, "main", document("b"))
    with pytest.raises(KnowledgeMoved) as refused:
        engine.write("main", Write(put_documents=[document("c")]), expected=first)
    assert refused.value.details["head"] == second
    with pytest.raises(KnowledgeMoved):
        engine.commit("main", message="m", author=AUTHOR, date=DATE, expected=first)
    assert engine.count_documents(WorkingSet("main")) == 2


def test_writing_to_an_absent_branch_is_refused(engine: Engine) -> None:
    with pytest.raises(BranchMissing):
        engine.write("absent", Write(), expected=root(engine))
    with pytest.raises(BranchMissing):
        engine.commit("absent", message="m", author=AUTHOR, date=DATE, expected=root(engine))
    with pytest.raises(BranchMissing):
        engine.count_documents(WorkingSet("absent"))


def test_writing_existing_rows_leaves_the_branch_clean(engine: Engine) -> None:
    store(engine, "main", document("a"))
    put(engine, "main", document("a"))
    assert engine.find_branch("main").dirty is False


# -- committing


def test_commit_has_its_parent_message_author_and_date(engine: Engine) -> None:
    engine.create_branch("main", root(engine))
    put(engine, "main", document("a"))
    message = "--amend\n\nsecond \\n line, 'quoted' ü 🙂\n"
    revision = engine.commit(
        "main", message=message, author="Ünal O'Hara <u@x.org>", date="1999-12-31T23:59:59Z", expected=root(engine)
    )
    info = engine.read_revision(revision)
    assert info.parents == (root(engine),)
    assert info.message.strip() == message.strip()
    assert (info.author, info.date) == ("Ünal O'Hara <u@x.org>", "1999-12-31T23:59:59Z")
    assert head(engine, "main") == revision
    assert not engine.find_branch("main").dirty


def test_equal_inputs_give_equal_revisions_however_the_rows_came(engine: Engine) -> None:
    rows = [document(f"d{number}") for number in range(50)]
    engine.create_branch("one", root(engine))
    engine.create_branch("other", root(engine))
    put(engine, "one", *rows)
    put(engine, "other", document("gone"), *reversed(rows[20:]))
    put(engine, "other", *rows[:20])
    engine.write("other", Write(remove_documents=[("guide", "gone")]), expected=root(engine))
    assert commit(engine, "one") == commit(engine, "other")


@pytest.mark.parametrize("field", ["message", "author", "date"])
def test_different_inputs_give_a_different_revision(engine: Engine, field: str) -> None:
    other = {"message": "another", "author": "Bob <b@x.org>", "date": "2026-01-02T03:04:06Z"}[field]
    revisions = set()
    for branch, change in (("one", {}), ("other", {field: other})):
        engine.create_branch(branch, root(engine))
        put(engine, branch, document("a"))
        values = {"message": "m", "author": AUTHOR, "date": DATE, **change}
        revisions.add(engine.commit(branch, **values, expected=root(engine)))
    assert len(revisions) == 2


def test_commit_without_changes_raises_no_changes(engine: Engine) -> None:
    store(engine, "main", document("a"))
    with pytest.raises(NoChanges):
        commit(engine, "main")
    put(engine, "main", document("b"))
    engine.write("main", Write(remove_documents=[("guide", "b")]), expected=head(engine, "main"))
    with pytest.raises(NoChanges):
        commit(engine, "main")


def test_removing_a_collection_is_a_change_to_commit(engine: Engine) -> None:
    engine.create_branch("main", root(engine))
    engine.write("main", Write([guide()]), expected=root(engine))
    first = commit(engine, "main")
    engine.write("main", Write(remove_collections=["guide"]), expected=first)
    assert engine.list_collections(commit(engine, "main")) == []


def test_unreadable_date_or_author_is_refused_and_nothing_is_committed(engine: Engine) -> None:
    engine.create_branch("main", root(engine))
    put(engine, "main", document("a"))
    for change in ({"date": "yesterday"}, {"author": "nobody"}, {"message": "a\0b"}, {"author": "a\ud800 <b@c>"}):
        with pytest.raises((EngineFailed, ContentRefused)):
            engine.commit("main", **{"message": "m", "author": AUTHOR, "date": DATE, **change}, expected=root(engine))
    assert head(engine, "main") == root(engine)
    assert engine.find_branch("main").dirty


# -- revisions


@pytest.mark.parametrize("text", NO_REVISION)
def test_text_that_names_no_revision_is_never_read_as_one(engine: Engine, text: str) -> None:
    revision = store(engine, "main", document("a"))
    assert engine.has_revision(text) is False
    assert engine.find_unreachable([text]) == []
    assert engine.map_parents([text]) == {}
    for ask in (
        lambda: engine.read_revision(text),
        lambda: list(engine.log(text)),
        lambda: engine.is_ancestor(text, revision),
        lambda: engine.is_ancestor(revision, text),
        lambda: engine.merge_base(revision, text),
        lambda: engine.anchor_revision(text, reason="r"),
        lambda: engine.create_branch("new", text),
        lambda: engine.move_branch("main", text, expected=revision),
        lambda: engine.count_documents(text),
        lambda: list(engine.read_documents(text)),
        lambda: engine.diff(revision, text),
        lambda: engine.diff(text, WorkingSet("main")),
        lambda: engine.diff_headers(revision, text),
        lambda: engine.read_document_history(text, "guide", "a"),
    ):
        with pytest.raises(RevisionMissing):
            ask()


def test_abbreviated_and_uppercase_hashes_are_not_revisions(engine: Engine) -> None:
    revision = store(engine, "main", document("a"))
    assert engine.has_revision(revision)
    for text in (revision[:-1], revision[:10], revision.upper(), f"{revision} ", f"{revision}~1", f"{revision}\n"):
        assert engine.has_revision(text) is False, text


def test_log_has_children_before_parents_despite_their_dates(engine: Engine) -> None:
    chance = random.Random(7)
    made = [root(engine)]
    for number in range(40):
        branch = f"b{number}"
        engine.create_branch(branch, chance.choice(made))
        put(engine, branch, document(f"d{number}"))
        made.append(commit(engine, branch, date=f"20{chance.randrange(10, 60)}-01-01T00:00:00Z"))
        engine.anchor_revision(chance.choice(made), reason="merge commits too")
    engine.anchor_revision(made[-1], reason="the last")
    for start in (*made[-5:], *(branch.head for branch in engine.list_branches())):
        log = list(engine.log(start))
        place = {info.revision: index for index, info in enumerate(log)}
        assert log[0].revision == start
        assert len(place) == len(log)
        for info in log:
            assert all(place[parent] > place[info.revision] for parent in info.parents)


def test_ancestry_agrees_with_the_log(engine: Engine) -> None:
    chance = random.Random(3)
    made = [root(engine)]
    for number in range(12):
        engine.create_branch(f"b{number}", chance.choice(made))
        made.append(store(engine, f"b{number}", document(f"d{number}")))
    logs = {revision: {info.revision: info.parents for info in engine.log(revision)} for revision in made}
    assert engine.map_parents(made) == {name: parents for log in logs.values() for name, parents in log.items()}
    for descendant in made:
        inside = logs[descendant].keys()
        assert engine.map_parents([descendant]) == logs[descendant]
        for ancestor in made:
            assert engine.is_ancestor(ancestor, descendant) == (ancestor in inside)
            base = engine.merge_base(ancestor, descendant)
            assert base is not None
            assert engine.is_ancestor(base, ancestor)
            assert engine.is_ancestor(base, descendant)
            assert (base == ancestor) == (ancestor in inside)


def test_log_can_be_limited(engine: Engine) -> None:
    first = store(engine, "main", document("a"))
    second = store(engine, "main", document("b"))
    assert [info.revision for info in engine.log(second, limit=2)] == [second, first]
    assert list(engine.log(second, limit=0)) == []
    assert len(list(engine.log(second))) > 2


def test_every_revision_in_the_log_can_be_read_and_compared(engine: Engine) -> None:
    """The engine's own initial commits have no tables yet: they are empty, not invalid."""
    revision = store(engine, "main", document("a"))
    for info in engine.log(revision):
        documents = list(engine.read_documents(info.revision))
        assert engine.count_documents(info.revision) == len(documents) == len(list(engine.read_headers(info.revision)))
        assert engine.diff(info.revision, revision).count_changes().added == 1 - len(documents)
        assert engine.diff(revision, info.revision).count_changes().removed == 1 - len(documents)


# -- branches


def test_list_branches_sorts_by_name_with_head_and_dirty_state(engine: Engine) -> None:
    revision = store(engine, "main", document("a"))
    engine.create_branch("feature/x", root(engine))
    put(engine, "feature/x", document("b"))
    result = {branch.name: (branch.head, branch.dirty) for branch in engine.list_branches()}
    assert list(result) == sorted(result)
    assert result == {
        "feature/x": (root(engine), True),
        "main": (revision, False),
        ROOT_BRANCH: (root(engine), False),
    }
    assert engine.find_branch("absent") is None


@pytest.mark.parametrize(
    "name", ["main", "feature/login-2", "a@b", "a'b", "a%20b", "release/1.2", "vmrag/wip/main", "x" * 200]
)
def test_branch_can_have_any_ordinary_name(engine: Engine, name: str) -> None:
    assert engine.is_legal_branch_name(name)
    revision = store(engine, name, document("a"))
    assert engine.count_documents(WorkingSet(name)) == 1
    assert head(engine, name) == revision
    engine.delete_branch(name, expected=revision)
    assert engine.find_branch(name) is None


@pytest.mark.parametrize(
    "name", ["", "head", "HEAD", "größe", "a b", "-x", "a..b", "a\nb", "a\0b", ".", "'; --\0", "a~1"]
)
def test_illegal_name_is_refused(engine: Engine, name: str) -> None:
    assert not engine.is_legal_branch_name(name)
    with pytest.raises(NameInvalid):
        engine.create_branch(name, root(engine))
    assert len(engine.list_branches()) == 1


def test_names_that_differ_only_in_case_collide(engine: Engine) -> None:
    engine.create_branch("Feature", root(engine))
    for name in ("feature", "FEATURE", "Feature"):
        with pytest.raises(BranchExists):
            engine.create_branch(name, root(engine))


def test_branch_moves_to_any_revision(engine: Engine) -> None:
    first = store(engine, "main", document("a"))
    second = store(engine, "main", document("b"))
    engine.move_branch("main", first, expected=second)
    assert [d.doc_id for d in engine.read_documents(WorkingSet("main"))] == ["a"]
    assert not engine.find_branch("main").dirty
    engine.move_branch("main", second, expected=first)
    assert engine.count_documents(WorkingSet("main")) == 2


def test_dirty_branch_refuses_to_move_and_to_be_deleted(engine: Engine) -> None:
    revision = store(engine, "main", document("a"))
    put(engine, "main", document("b"))
    with pytest.raises(Uncommitted):
        engine.move_branch("main", root(engine), expected=revision)
    with pytest.raises(Uncommitted):
        engine.delete_branch("main", expected=revision)
    assert engine.count_documents(WorkingSet("main")) == 2


def test_branch_elsewhere_than_expected_refuses_to_move_and_to_be_deleted(engine: Engine) -> None:
    revision = store(engine, "main", document("a"))
    for call in (
        lambda: engine.move_branch("main", root(engine), expected=root(engine)),
        lambda: engine.delete_branch("main", expected=root(engine)),
    ):
        with pytest.raises(KnowledgeMoved):
            call()
    assert head(engine, "main") == revision
    with pytest.raises(BranchMissing):
        engine.move_branch("absent", revision, expected=revision)
    with pytest.raises(BranchMissing):
        engine.delete_branch("absent", expected=revision)


def test_each_branch_has_a_working_set_of_its_own(engine: Engine) -> None:
    for name in ("one", "other"):
        engine.create_branch(name, root(engine))
        put(engine, name, document(name))
    assert [d.doc_id for d in engine.read_documents(WorkingSet("one"))] == ["one"]
    assert [d.doc_id for d in engine.read_documents(WorkingSet("other"))] == ["other"]
    commit(engine, "one")
    assert [branch.dirty for branch in engine.list_branches()] == [False, True, False]
    assert engine.count_documents(WorkingSet("other")) == 1


# -- reading


def test_documents_come_in_the_order_of_their_keys_as_bytes(engine: Engine) -> None:
    names = ["a", "B", "a/b", "a b", "ä", "z", "Z", "\uffff", "🙂", "a10", "a9", "~", "é", "e\u0301"]
    written = [document(name, collection=collection) for name in names for collection in ("x", "X", "é")]
    revision = store(engine, "main", *written)
    expected = sorted((d.key for d in written), key=lambda key: (key[0].encode(), key[1].encode()))
    assert [d.key for d in engine.read_documents(revision)] == expected
    assert [h.key for h in engine.read_headers(WorkingSet("main"))] == expected
    assert [d.key for d in engine.read_documents(revision, collection="X")] == [k for k in expected if k[0] == "X"]
    assert [c.after.key for c in engine.diff(root(engine), revision).documents] == expected


def test_collections_come_sorted_by_name(engine: Engine) -> None:
    engine.create_branch("main", root(engine))
    engine.write("main", Write([Collection(name) for name in ("b", "a", "B", "é")]), expected=root(engine))
    assert [c.name for c in engine.list_collections(WorkingSet("main"))] == ["B", "a", "b", "é"]


def test_missing_document_is_returned_as_none(engine: Engine) -> None:
    revision = store(engine, "main", document("a"))
    assert engine.find_document(revision, "guide", "b") is None
    assert engine.find_document(root(engine), "guide", "a") is None
    assert engine.find_document(WorkingSet("main"), "Guide", "a") is None


def test_documents_are_counted_per_collection(engine: Engine) -> None:
    revision = store(engine, "main", document("a"), document("b"), document("a", collection="other"))
    assert (engine.count_documents(revision), engine.count_documents(revision, collection="guide")) == (3, 2)
    assert engine.count_documents(WorkingSet("main"), collection="absent") == 0


def test_stream_of_documents_does_not_fill_the_memory(engine: Engine) -> None:
    revision = store(engine, "main", *(document(f"d{number:04}", "x" * 20_000) for number in range(1_000)))
    tracemalloc.start()
    for _ in engine.read_documents(revision):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_stream_continues_from_its_own_state_during_writes(engine: Engine) -> None:
    store(engine, "main", *(document(f"d{number:04}") for number in range(500)))
    stream = engine.read_documents(WorkingSet("main"))
    next(stream)
    engine.write("main", Write(remove_documents=[("guide", "d0400")]), expected=head(engine, "main"))
    engine.collect_garbage()
    assert len(list(stream)) == 499
    assert engine.count_documents(WorkingSet("main")) == 499


# -- differences


def test_difference_lists_added_modified_and_removed_documents(engine: Engine) -> None:
    old = store(engine, "main", document("keep"), document("change", "1"), document("drop"))
    engine.write("main", Write(remove_documents=[("guide", "drop")]), expected=old)
    new = store(engine, "main", document("change", "2"), document("new"))
    difference = engine.diff(old, new)
    assert [(c.kind, c.key[1]) for c in difference.documents] == [
        ("modified", "change"),
        ("removed", "drop"),
        ("added", "new"),
    ]
    modified, removed, added = difference.documents
    assert (modified.before, modified.after) == (document("change", "1").header, document("change", "2"))
    assert (removed.before, removed.after) == (document("drop").header, None)
    assert (added.before, added.after) == (None, document("new"))
    back = engine.diff(new, old)
    assert [(c.kind, c.key[1]) for c in back.documents] == [
        ("modified", "change"),
        ("added", "drop"),
        ("removed", "new"),
    ]
    assert engine.diff(new, new).is_empty


@pytest.mark.parametrize("field", ["title", "content", "metadata", "source", "source_key", "file_type"])
def test_every_field_but_the_times_makes_a_difference(engine: Engine, field: str) -> None:
    old = store(engine, "main", document("a", metadata="{}"))
    value = '{"k":1}' if field == "metadata" else "other"
    new = store(engine, "main", Document(**{**_fields(document("a")), field: value}))
    assert engine.diff(old, new).count_changes().modified == 1
    assert engine.diff(WorkingSet("main"), old).count_changes().modified == 1


def test_documents_that_differ_only_in_their_times_are_equal(engine: Engine) -> None:
    old = store(engine, "main", document("a"))
    times = {"created_at": "2", "updated_at": "3", "last_modified": "4"}
    put(engine, "main", document("a", **times))
    assert engine.diff(old, WorkingSet("main")).is_empty
    new = commit(engine, "main")
    assert new != old
    assert engine.diff(old, new).is_empty
    engine.create_branch("other", old)
    assert engine.diff(WorkingSet("main"), WorkingSet("other")).is_empty


def test_difference_covers_collections(engine: Engine) -> None:
    engine.create_branch("main", root(engine))
    engine.write("main", Write([guide(), Collection("drop")]), expected=root(engine))
    old = commit(engine, "main")
    changed = guide(chunking=Chunking(size=99))
    engine.write("main", Write([changed, Collection("new")], ["drop"]), expected=old)
    for new in (WorkingSet("main"), commit(engine, "main")):
        result = [(c.kind, c.before, c.after) for c in engine.diff(old, new).collections]
        assert result == [
            ("removed", Collection("drop"), None),
            ("modified", guide(), changed),
            ("added", None, Collection("new")),
        ]


def test_revision_differs_from_a_working_set_in_both_directions(engine: Engine) -> None:
    first = store(engine, "main", document("a"))
    second = store(engine, "main", document("b"))
    put(engine, "main", document("c"), document("a", "changed"))
    assert [(c.kind, c.key[1]) for c in engine.diff(second, WorkingSet("main")).documents] == [
        ("modified", "a"),
        ("added", "c"),
    ]
    assert [(c.kind, c.key[1]) for c in engine.diff(first, WorkingSet("main")).documents] == [
        ("modified", "a"),
        ("added", "b"),
        ("added", "c"),
    ]
    assert [(c.kind, c.key[1]) for c in engine.diff(WorkingSet("main"), second).documents] == [
        ("modified", "a"),
        ("removed", "c"),
    ]


def test_difference_of_any_two_revisions_matches_their_rows(engine: Engine) -> None:
    """Random histories: revisions, clean and dirty working sets, in every pair and both orders."""
    chance = random.Random(11)
    places: list = [root(engine)]
    for number in range(6):
        branch = f"b{number}"
        engine.create_branch(branch, chance.choice([place for place in places if isinstance(place, str)]))
        for _ in range(2):
            removed = [("guide", f"d{chance.randrange(8)}") for _ in range(2)]
            added = [
                document(f"d{chance.randrange(8)}", chance.choice("xy"), source=chance.choice("pq")) for _ in range(4)
            ]
            collections = [Collection(chance.choice("ab"), kind=chance.choice("uv"))]
            engine.write(branch, Write(collections, [], added, removed), expected=head(engine, branch))
            if engine.find_branch(branch).dirty and chance.random() < 0.6:
                places.append(commit(engine, branch))
        places.append(WorkingSet(branch))
    rows = {place: {d.key: d for d in engine.read_documents(place)} for place in places}
    collections = {place: {c.name: c for c in engine.list_collections(place)} for place in places}
    for old in places:
        for new in places:
            assert engine.count_changes(old, new) == engine.diff(old, new).count_changes()
            difference = engine.diff(old, new)
            keys = sorted(rows[old].keys() | rows[new].keys())
            expected = [(rows[old].get(k), rows[new].get(k)) for k in keys if rows[old].get(k) != rows[new].get(k)]
            assert [(c.before, c.after) for c in difference.documents] == [(o and o.header, n) for o, n in expected]
            names = sorted(collections[old].keys() | collections[new].keys())
            pairs = [(collections[old].get(n), collections[new].get(n)) for n in names]
            assert [(c.before, c.after) for c in difference.collections] == [(o, n) for o, n in pairs if o != n]
            headers = engine.diff_headers(old, new)
            assert headers.collections == difference.collections
            assert [(c.kind, c.before, c.after) for c in headers.documents] == [
                (c.kind, c.before, c.after and c.after.header) for c in difference.documents
            ]


def test_headers_of_a_difference_do_not_fill_the_memory(engine: Engine) -> None:
    old = root(engine)
    new = store(engine, "main", *(document(f"d{number:03}", "x" * 50_000) for number in range(200)))
    tracemalloc.start()
    assert len(engine.diff_headers(old, new).documents) == len(engine.diff_headers(new, old).documents) == 200
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000  # of 10 MB of texts


def test_document_history_has_the_header_of_every_revision_with_document(engine: Engine) -> None:
    sides = {"author": AUTHOR, "date": DATE}
    first = store(engine, "main", document("a", "1"))
    ours = engine.commit_onto(first, [Write(put_documents=[document("a", "2")])], message="2", **sides)
    theirs = engine.commit_onto(first, [Write(put_documents=[document("b")])], message="b", **sides)
    merged = engine.commit_onto(ours, [Write(put_documents=[document("b")])], joining=theirs, message="m", **sides)
    gone = engine.commit_onto(merged, [Write(remove_documents=[("guide", "a")])], message="gone", **sides)
    logged = engine.commit_onto(gone, [Write(put_documents=[log("a")])], message="a log", **sides)
    old, new = document("a", "1").header, document("a", "2").header
    assert engine.read_document_history(logged, "guide", "a") == {first: old, ours: new, theirs: old, merged: new}
    assert engine.read_document_history(theirs, "guide", "a") == {first: old, theirs: old}
    assert engine.read_document_history(logged, log("a").collection, "a") == {logged: log("a").header}
    assert (
        engine.read_document_history(logged, "guide", "z")
        == engine.read_document_history(root(engine), "guide", "a")
        == {}
    )
    assert engine.read_document_history(engine.read_revision(root(engine)).parents[0], "guide", "a") == {}


def test_find_damage_reports_overwritten_page_and_accepts_sound_knowledge_base(
    engines: Engines, tmp_path: Path
) -> None:
    engine = engines.create(tmp_path / "kb")
    store(engine, "main", *[document(f"d{number}", f"text {number} " * 200) for number in range(1000)])
    engine.collect_garbage()  # what was appended since then is checked whenever the file is opened
    assert engine.find_damage() == ""
    engine.close()
    engines.damage(tmp_path / "kb", "text 500 ")
    damaged = engines.open(tmp_path / "kb")
    assert damaged.find_damage()
    damaged.close()


# -- anchors and garbage


def test_anchored_revision_outlives_garbage_collection_and_an_unreachable_one_does_not(
    engines: Engines, engine: Engine
) -> None:
    kept, dropped = [], []
    for number in range(6):
        store(engine, "main", document("a", f"version {number}"))
        (kept if number % 2 else dropped).append(engines.forget(engine, "main"))
        if number % 2:
            engine.anchor_revision(kept[-1], reason="pinned in git history")
    candidates = [*dropped, *kept, "0" * 40, "main", root(engine)]
    assert engine.find_unreachable(candidates) == dropped
    assert engine.find_unreachable(reversed(candidates)) == dropped[::-1]
    assert all(map(engine.has_revision, dropped))
    engine.collect_garbage()
    assert engine.find_unreachable(candidates) == []
    assert [next(engine.read_documents(revision)).content for revision in kept] == [
        "version 1",
        "version 3",
        "version 5",
    ]
    assert not any(map(engine.has_revision, dropped))


def test_revisions_left_by_branches_survive_garbage_collection(engine: Engine) -> None:
    revisions = []
    for number in range(4):
        revisions.append(store(engine, "main", document("a", f"version {number}")))
        if number % 2:
            engine.move_branch("main", root(engine), expected=revisions[-1])
        else:
            engine.delete_branch("main", expected=revisions[-1])
    engine.collect_garbage()
    assert engine.find_unreachable(revisions) == []
    assert [next(engine.read_documents(revision)).content for revision in revisions] == [
        f"version {n}" for n in range(4)
    ]


def test_branch_that_moves_forward_leaves_nothing_to_anchor(engine: Engine) -> None:
    first = store(engine, "main", document("a", "1"))
    second = store(engine, "main", document("a", "2"))
    engine.create_branch("copy", first)
    engine.move_branch("copy", second, expected=first)
    engine.delete_branch("copy", expected=second)
    assert engine.find_branch(KEEP_BRANCH) is None


def test_anchor_merges_kept_revisions_with_a_new_one(engine: Engine) -> None:
    revisions = []
    for number in range(3):
        before = engine.find_branch(KEEP_BRANCH)
        revisions.append(store(engine, "main", document("a", f"conflicting {number}")))
        engine.anchor_revision(revisions[-1], reason="nothing yet")  # main reaches it
        assert engine.find_branch(KEEP_BRANCH) == before
        engine.move_branch("main", root(engine), expected=revisions[-1])
        after = head(engine, KEEP_BRANCH)
        assert engine.is_ancestor(revisions[-1], after)
        assert before is None or engine.is_ancestor(before.head, after)
    assert len(engine.read_revision(head(engine, KEEP_BRANCH)).parents) == 2
    assert not engine.find_branch(KEEP_BRANCH).dirty
    assert all(engine.is_ancestor(revision, head(engine, KEEP_BRANCH)) for revision in revisions)


def test_anchoring_a_reachable_revision_changes_nothing(engine: Engine) -> None:
    revision = store(engine, "main", document("a"))
    engine.anchor_revision(revision, reason="pinned")
    engine.anchor_revision(root(engine), reason="pinned")
    assert engine.find_branch(KEEP_BRANCH) is None
    engine.move_branch("main", root(engine), expected=revision)
    before = engine.list_branches()
    engine.anchor_revision(revision, reason="again")
    assert engine.list_branches() == before


def test_anchor_disturbs_no_branch_and_no_working_set(engines: Engines, engine: Engine) -> None:
    first = store(engine, "main", document("a", "1"))
    engine.move_branch("main", root(engine), expected=first)
    store(engine, "main", document("a", "2"))
    second = engines.forget(engine, "main")
    put(engine, "main", document("uncommitted"))
    before = [branch for branch in engine.list_branches() if branch.name != KEEP_BRANCH]
    engine.anchor_revision(second, reason="r")
    assert [branch for branch in engine.list_branches() if branch.name != KEEP_BRANCH] == before
    assert [d.doc_id for d in engine.read_documents(WorkingSet("main"))] == ["uncommitted"]


def test_working_sets_survive_garbage_collection(engine: Engine) -> None:
    for name in ("one", "other"):
        store(engine, name, document("committed"))
        put(engine, name, document(name))
    engine.collect_garbage()
    for name in ("one", "other"):
        assert [d.doc_id for d in engine.read_documents(WorkingSet(name))] == ["committed", name]
        assert engine.find_branch(name).dirty


def test_garbage_collection_gives_space_back(engines: Engines, engine: Engine) -> None:
    noise = random.Random(1)
    store(engine, "main", document("a", "".join(chr(noise.randrange(0x4E00, 0x9FFF)) for _ in range(500_000))))
    engines.forget(engine, "main")
    before = engines.size(engine.folder)
    engine.collect_garbage()
    assert engines.size(engine.folder) < before - 1_000_000


# -- several processes


def test_write_lock_is_reentrant_within_an_instance(engine: Engine) -> None:
    engine.create_branch("main", root(engine))
    with engine.write_lock("do several things"), engine.write_lock("do one of them", timeout=0):
        put(engine, "main", document("a"))
    with engine.write_lock("do more", timeout=0):
        commit(engine, "main")


def test_waiting_writer_raises_busy_with_the_holder(engines: Engines, engine: Engine) -> None:
    engine.create_branch("main", root(engine))
    waiting = engines.open(engine.folder, lock_timeout=0.1)
    with engines.child(
        engine.folder, "with engine.write_lock('import a library'): print('held', flush=True); input()"
    ) as child:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(Busy) as busy:
            put(waiting, "main", document("a"))
        assert busy.value.details["holder_pid"] == child.pid
        assert "import a library" in busy.value.message
        assert waiting.count_documents(WorkingSet("main")) == 0, "readers do not wait"
        child.communicate("\n")
    waiting.close()
    patient = engines.open(engine.folder)  # Dolt's own lock stays for a second after `create_branch`
    put(patient, "main", document("a"))
    patient.close()


def test_two_instances_in_one_process_exclude_each_other(engines: Engines, engine: Engine) -> None:
    other = engines.open(engine.folder, lock_timeout=0.05)
    with engine.write_lock("work"), pytest.raises(Busy), other.write_lock("work too"):
        pass
    other.close()


def test_changes_of_another_process_are_visible_at_once(engines: Engines, engine: Engine) -> None:
    engine.create_branch("main", root(engine))
    put(engine, "main", document("mine"))
    with engines.child(engine.folder, "print(store(engine, 'main', document('theirs')), flush=True)") as child:
        revision = child.stdout.readline().strip()
    assert head(engine, "main") == revision
    assert [d.doc_id for d in engine.read_documents(WorkingSet("main"))] == ["mine", "theirs"]
    with pytest.raises(KnowledgeMoved):
        engine.write("main", Write(put_documents=[document("late")]), expected=root(engine))


KILLED = """
number = engine.count_documents(WorkingSet('main')) // 20
print('ready', flush=True)
while True:
    put(engine, 'main', *(document(f'{number:06}-{i:02}', 'x' * 500) for i in range(20)))
    print('wrote', number, flush=True)
    print('committed', number, commit(engine, 'main', f'batch {number}'), flush=True)
    if number % 3 == 2:
        other = store(engine, 'side', document('s', str(number)))
        engine.move_branch('side', root(engine), expected=other)
        print('anchored', number, other, flush=True)
    number += 1
"""


def test_killed_writer_loses_nothing_that_it_acknowledged(engines: Engines, engine: Engine) -> None:
    chance = random.Random(5)
    engine.create_branch("main", root(engine))
    engine.create_branch("side", root(engine))
    committed, anchored, wrote = [], [], -1
    for _ in range(examples(12)):
        child = engines.child(engine.folder, KILLED)
        with child:
            assert child.stdout.readline() == "ready\n"
            try:
                child.wait(engines.pace * chance.uniform(0.01, 0.15))
            except support.subprocess.TimeoutExpired:
                child.kill()
            for line in child.stdout:
                if not line.endswith("\n"):
                    break
                kind, number, *rest = line.split()
                if kind == "wrote":
                    wrote = max(wrote, int(number))
                else:
                    (committed if kind == "committed" else anchored).append(rest[0])
        assert child.returncode == -9
        fresh = engines.open(engine.folder)
        keys = [h.doc_id for h in fresh.read_headers(WorkingSet("main"))]
        assert len(keys) % 20 == 0, "a partial batch"
        assert len(keys) >= 20 * (wrote + 1), "an acknowledged write is lost"
        assert all(fresh.is_ancestor(revision, head(fresh, "main")) for revision in committed)
        assert fresh.find_unreachable(anchored) == []
        fresh.close()
    assert committed
    engine.collect_garbage()
    assert all(map(engine.has_revision, committed + anchored))


def _fields(row: Document) -> dict[str, str]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


# -- commits on top of a revision


def _two_sides(engine: Engine) -> tuple[str, str, str]:
    """A base with the documents a, b and c; ours changed a, theirs changed a and b and removed
    c.
    """
    base = store(engine, "main", *(document(name, "base") for name in "abc"))
    for branch in ("ours", "theirs"):
        engine.create_branch(branch, base)
    ours = store(engine, "ours", document("a", "ours"))
    engine.write(
        "theirs", Write(remove_documents=[("guide", "c")], put_collections=[guide(metadata='{"a":1}')]), expected=base
    )
    return base, ours, store(engine, "theirs", document("a", "theirs"), document("b", "theirs"))


def _onto(engine: Engine, revision: str, *rows: Write, joining: str | None = None) -> str:
    return engine.commit_onto(revision, rows, joining=joining, message="merged", author=AUTHOR, date=DATE)


def test_commit_onto_a_revision_moves_no_branch_and_is_kept(engine: Engine) -> None:
    _, ours, _ = _two_sides(engine)
    before = [branch for branch in engine.list_branches() if branch.name != KEEP_BRANCH]
    made = _onto(engine, ours, Write(put_documents=[document("d")]), Write(remove_documents=[("guide", "b")]))
    assert [document.doc_id for document in engine.read_documents(made)] == ["a", "c", "d"]
    assert engine.read_revision(made).parents == (ours,)
    assert [branch for branch in engine.list_branches() if branch.name != KEEP_BRANCH] == before
    engine.collect_garbage()
    assert engine.has_revision(made)


@pytest.mark.parametrize("related", ["apart", "theirs contains ours"])
def test_joined_revision_is_a_parent_and_changes_nothing_of_the_content(engine: Engine, related: str) -> None:
    base, ours, theirs = _two_sides(engine)
    if related == "theirs contains ours":
        ours = base
    made = _onto(engine, ours, Write(put_documents=[document("d")]), joining=theirs)
    assert engine.read_revision(made).parents == (ours, theirs)
    assert engine.is_ancestor(theirs, made)
    assert list(engine.read_documents(made)) == [*engine.read_documents(ours), document("d")]
    assert engine.list_collections(made) == engine.list_collections(ours)
    assert engine.diff(ours, made).count_changes().total == 1


def test_joining_without_a_change_still_makes_a_revision(engine: Engine) -> None:
    _, ours, theirs = _two_sides(engine)
    made = _onto(engine, ours, joining=theirs)
    assert engine.read_revision(made).parents == (ours, theirs)
    assert engine.diff(ours, made).is_empty


def test_empty_commit_onto_a_revision_returns_it(engine: Engine) -> None:
    base, ours, _ = _two_sides(engine)
    assert _onto(engine, ours, Write()) == ours
    assert _onto(engine, ours, joining=base) == ours
    assert _onto(engine, ours, Write(put_documents=[document("a", "ours")])) == ours


def test_revision_kept_by_empty_commit_survives_garbage_collection(engines: Engines, engine: Engine) -> None:
    store(engine, "main", document("a"))
    revision = engines.forget(engine, "main")
    assert _onto(engine, revision, Write()) == revision
    engine.collect_garbage()
    assert engine.has_revision(revision)


def test_making_the_same_commit_again_keeps_nothing_more(engine: Engine) -> None:
    _, ours, theirs = _two_sides(engine)
    store(engine, "main", document("e"))
    engine.delete_branch("main", expected=head(engine, "main"))
    made = _onto(engine, ours, Write(put_documents=[document("d")]), joining=theirs)
    before = engine.list_branches()
    assert _onto(engine, ours, Write(put_documents=[document("d")]), joining=theirs) == made
    assert engine.list_branches() == before


def _recreated(engine: Engine, parents: list[str], *rows: Write) -> str:
    return engine.recreate_revision(parents, rows, message="again", author=AUTHOR, date=DATE)


def test_revision_is_made_again_on_its_parents_and_nothing_keeps_it(engine: Engine) -> None:
    _, ours, theirs = _two_sides(engine)
    before = engine.list_branches()
    made = _recreated(engine, [ours], Write(put_documents=[document("d")]), Write(remove_documents=[("guide", "b")]))
    merged = _recreated(engine, [ours, theirs], Write(put_documents=[document("m")]))
    unchanged = _recreated(engine, [made])
    assert [document.doc_id for document in engine.read_documents(made)] == ["a", "c", "d"]
    assert list(engine.read_documents(merged)) == [*engine.read_documents(ours), document("m")]
    assert [engine.read_revision(revision).parents for revision in (made, merged, unchanged)] == [
        (ours,),
        (ours, theirs),
        (made,),
    ]
    assert made == _recreated(engine, [ours], Write(put_documents=[document("d")], remove_documents=[("guide", "b")]))
    assert engine.list_branches() == before
    assert engine.find_unreachable([made, merged, unchanged]) == [made, merged, unchanged]


def test_revision_of_parents_that_an_engine_cannot_join_is_refused(engine: Engine) -> None:
    base, ours, _ = _two_sides(engine)
    before = engine.list_branches()
    with pytest.raises(EngineFailed):
        _recreated(engine, [ours, base])
    with pytest.raises(RevisionMissing):
        _recreated(engine, [ours, "0" * len(ours)])
    assert engine.list_branches() == before


def test_only_anchors_and_the_first_commit_have_no_tables(engine: Engine) -> None:
    _, ours, _ = _two_sides(engine)
    for revision in (_recreated(engine, [ours], Write(put_documents=[document(name)])) for name in "xyz"):
        engine.anchor_revision(revision, reason="a test")
    keep = head(engine, KEEP_BRANCH)
    assert not any(map(engine.is_bare, (ours, root(engine))))
    assert all(map(engine.is_bare, (keep, *engine.read_revision(root(engine)).parents)))
    with pytest.raises(RevisionMissing):
        engine.is_bare("0" * len(ours))


def test_documents_that_differ_only_in_times_are_shown_on_request(engine: Engine) -> None:
    first = store(engine, "main", document("a"), log("i"), knowledge("k"))
    later = {"created_at": "2", "updated_at": "3"}
    second = store(engine, "main", document("a", **later), log("i", **later))
    assert not engine.diff_headers(first, second).documents
    shown = engine.diff_headers(first, second, times=True).documents
    assert [(document.key, document.kind) for document in shown] == [
        (("guide", "a"), "modified"),
        (("issues_vmrag", "i"), "modified"),
    ]


KILLED_WHILE_JOINING = """
import signal
def rows():
    os.kill(os.getpid(), signal.SIGKILL)
    yield
engine.commit_onto({ours!r}, [Write(put_documents=rows())], joining={theirs!r}, message='m', author=AUTHOR, date=DATE)
"""


def test_killed_commit_onto_revision_keeps_nothing_alive(engines: Engines, engine: Engine) -> None:
    base, ours, theirs = _two_sides(engine)
    store(engine, "main", document("e"))
    engine.delete_branch("main", expected=head(engine, "main"))
    before = engine.list_branches()
    with engines.child(engine.folder, KILLED_WHILE_JOINING.format(ours=ours, theirs=theirs)) as child:
        assert child.wait(30) == -9
    assert engine.list_branches() == before
    engine.move_branch("ours", base, expected=ours)
    made = _onto(engine, base, Write(put_documents=[document("d")]), joining=theirs)
    engine.collect_garbage()
    assert [document.content for document in engine.read_documents(ours)] == ["ours", "base", "base"]
    assert engine.find_unreachable([ours, theirs, made]) == []


def test_equal_joins_give_equal_revisions(engines: Engines, engine: Engine, tmp_path: Path) -> None:
    _, ours, theirs = _two_sides(engine)
    shutil.copytree(engine.folder, tmp_path / "copy")
    copy = engines.open(tmp_path / "copy")
    made = {
        _onto(store_engine, ours, Write(put_documents=[document("d")]), joining=theirs)
        for store_engine in (engine, copy)
        for _ in range(2)
    }
    copy.close()
    assert len(made) == 1


def test_unrelated_revisions_cannot_be_joined(engine: Engine, engines: Engines) -> None:
    _, ours, _ = _two_sides(engine)
    first = list(engine.log(ours))[-1].revision  # the engine's own; every history of this knowledge base has it
    with pytest.raises(RevisionMissing):
        _onto(engine, ours, joining="0" * 40)
    assert _onto(engine, ours, joining=first) == ours


def test_refused_content_leaves_nothing_of_a_commit_onto_a_revision(engine: Engine) -> None:
    _, ours, theirs = _two_sides(engine)
    before = engine.list_branches()
    with pytest.raises(ContentRefused):
        _onto(engine, ours, Write(put_documents=[document("d", "\0")]), joining=theirs)
    assert engine.list_branches() == before


# -- taking uncommitted rows back


def test_uncommitted_rows_are_taken_back_when_a_revision_holds_them(engine: Engine) -> None:
    base, _, _ = _two_sides(engine)
    put(engine, "main", document("d"))
    engine.write("main", Write(remove_documents=[("guide", "a")]), expected=base)
    kept = _onto(engine, base, Write(put_documents=[document("d")], remove_documents=[("guide", "a")]))
    engine.discard_saved_rows("main", kept=kept, expected=base)
    branch = engine.find_branch("main")
    assert branch is not None
    assert (branch.head, branch.dirty) == (base, False)
    assert list(engine.read_documents(WorkingSet("main"))) == list(engine.read_documents(base))


def test_uncommitted_rows_that_are_kept_nowhere_are_not_taken_back(engine: Engine) -> None:
    base, ours, _ = _two_sides(engine)
    put(engine, "main", document("d"))
    for kept in (base, ours):
        with pytest.raises(Uncommitted):
            engine.discard_saved_rows("main", kept=kept, expected=base)
    with pytest.raises(KnowledgeMoved):
        engine.discard_saved_rows("main", kept=base, expected=ours)
    with pytest.raises(BranchMissing):
        engine.discard_saved_rows("nowhere", kept=base, expected=base)
    assert engine.find_document(WorkingSet("main"), "guide", "d") == document("d")


def test_clean_branch_has_nothing_to_take_back(engine: Engine) -> None:
    base, ours, _ = _two_sides(engine)
    engine.discard_saved_rows("main", kept=ours, expected=base)
    assert head(engine, "main") == base


# -- links


def _link(engine: Engine, *put: Link, remove: tuple[str, ...] = ()) -> None:
    engine.write_links(put, remove=remove, message="linked", author=AUTHOR, date=DATE)


def test_links_are_stored_by_code_commit_on_their_own_branch(engine: Engine) -> None:
    base, ours, _ = _two_sides(engine)
    assert engine.list_links() == []
    before = engine.list_branches()
    one, two = (
        Link("1" * 40, base, "main", "ünï", "git@host:a", DATE, "manual", "", '{"a":1}'),
        Link("2" * 40, ours, "ours"),
    )
    _link(engine, two, one)
    assert engine.list_links() == [one, two]
    assert engine.list_links(git_commit="1" * 40) == [one]
    assert engine.list_links(dolt_commit=ours) == [two]
    assert engine.list_links(git_commit="3" * 40) == []
    assert [branch for branch in engine.list_branches() if branch.name != LINKS_BRANCH] == before
    assert engine.diff(base, ours).count_changes().total == 1


def test_repeated_link_replaces_and_equal_link_commits_nothing(engine: Engine) -> None:
    base, ours, _ = _two_sides(engine)
    _link(engine, Link("1" * 40, base, "main"))
    _link(engine, Link("1" * 40, ours, "ours"), Link("2" * 40, ours, "ours"))
    at = head(engine, LINKS_BRANCH)
    _link(engine, Link("1" * 40, ours, "ours"))
    assert head(engine, LINKS_BRANCH) == at
    _link(engine, remove=("1" * 40, "9" * 40))
    assert engine.list_links() == [Link("2" * 40, ours, "ours")]
    engine.collect_garbage()
    assert engine.list_links() == [Link("2" * 40, ours, "ours")]


def test_inexactly_storable_link_rejects_its_whole_batch(engine: Engine) -> None:
    with pytest.raises(ContentRefused):
        _link(engine, Link("1" * 40, "r", "main"), Link("2" * 40, "r", "ma\0in"))
    assert engine.list_links() == []


def test_links_for_a_remote_are_made_on_its_own_head(engine: Engine) -> None:
    base, ours, _ = _two_sides(engine)
    mine, theirs, late = (Link(digit * 40, base, "main") for digit in "123")
    _link(engine, mine)
    before = engine.list_branches()
    with engine.write_lock("push"):
        first = engine.build_links_head(None, [theirs], message="linked", author=AUTHOR, date=DATE)
        assert engine.list_links(at=first) == [theirs]
        second = engine.build_links_head(first, [late, theirs], message="linked", author=AUTHOR, date=DATE)
        assert engine.list_links(at=second) == [theirs, late]
        assert engine.list_links(at=second, git_commit=late.git_commit) == [late]
        assert engine.is_ancestor(first, second)
        assert engine.build_links_head(second, [late], message="linked", author=AUTHOR, date=DATE) == second
    assert (engine.list_branches(), engine.list_links()) == (before, [mine])
    with pytest.raises(RevisionMissing):
        engine.list_links(at="0" * len(second))
    assert engine.list_links(at=ours) == []


def test_links_branch_is_rejected_as_content(engine: Engine) -> None:
    base, _, _ = _two_sides(engine)
    _link(engine, Link("1" * 40, base, "main"))
    at = head(engine, LINKS_BRANCH)
    refused = engine.find_refusal(at)
    assert refused is not None
    assert "git_links" in refused.message
