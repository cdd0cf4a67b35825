"""Which removed document a new one is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engines import Engines, commit, document, head, store
from vmrag_link.engines.base import Engine, Write
from vmrag_link.models import Document
from vmrag_link.workspace.history.diff import diff_documents, stored_texts
from vmrag_link.workspace.history.trail import MAX_RENAME_CANDIDATES, with_moves


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Use either engine: both give the same differences."""
    made = Engines("doltlite").create(tmp_path / "kb")
    yield made
    made.close()


def moves(engine: Engine, gone: list[Document], new: list[Document]) -> dict[str, str]:
    """By the name of each document that moved that of before, where `new` took the place of
    `gone`.
    """
    before = store(engine, "main", *gone)
    keys = [removed.key for removed in gone]
    engine.write("main", Write(put_documents=new, remove_documents=keys), expected=head(engine, "main"))
    after = commit(engine, "main")
    result = with_moves(stored_texts(engine, before, after), diff_documents(engine, before, after))
    assert sorted(document.key for document in result.documents) == [document.key for document in result.documents]
    kept = [document for document in result.documents if document.before and document.after]
    assert all(change.kind == "modified" for change in kept)
    assert len(result.documents) == len(gone) + len(new) - len(kept)
    return {
        "/".join(change.after.key): "/".join(change.before.key) for change in kept if change.after and change.before
    }


def lines(*words: str) -> str:
    return "".join(f"The line of {word}.\n" for word in words)


def test_equal_texts_prefer_the_same_id_then_the_same_file_name(engine: Engine) -> None:
    gone = [document(name, "same", collection="a") for name in ("one.md", "x/two.md", "three.md")]
    new = [document(name, "same", collection="b") for name in ("y/two.md", "one.md", "four.md")]
    assert moves(engine, gone, new) == {"b/one.md": "a/one.md", "b/y/two.md": "a/x/two.md", "b/four.md": "a/three.md"}


def test_document_that_kept_half_of_its_lines_is_moved(engine: Engine) -> None:
    gone = [document("a", lines("one", "two", "three", "four")), document("b", lines("five", "six", "seven"))]
    new = [
        document("c", lines("one", "two", "three", "new")),
        document("d", lines("one", "two", "new", "newer")),
        document("e", lines("five", "new", "newer")),
    ]
    assert moves(engine, gone, new) == {"guide/c": "guide/a"}


def test_empty_documents_are_never_moved(engine: Engine) -> None:
    assert moves(engine, [document("a", "")], [document("b", "")]) == {}


def test_thousand_equal_documents_keep_their_names(engine: Engine) -> None:
    gone = [document(f"{number}.md", "same", collection="a") for number in range(1000)]
    new = [document(f"{number}.md", "same", collection="b") for number in range(1000)]
    assert moves(engine, gone, new) == {f"b/{number}.md": f"a/{number}.md" for number in range(1000)}


def test_too_many_texts_are_compared_only_by_file_name(engine: Engine) -> None:
    numbers = range(MAX_RENAME_CANDIDATES + 1)
    gone = [document(f"old/{number}.md", lines("begin", *f"{number}", "end")) for number in numbers]
    new = [document(f"new/{number or 'zero'}.md", lines("begin", *f"{number}", "fin")) for number in numbers]
    result = moves(engine, gone, new)
    assert result["guide/new/7.md"] == "guide/old/7.md"
    assert len(result) == MAX_RENAME_CANDIDATES + 1  # the one that is left is compared with the one that is left
