"""The files of notes: their names, their ids, and texts that come back as they were."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.long import examples
from vmrag_link.documents.import_base import find_id_problem
from vmrag_link.errors import ContentRefused
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import documents, notes
from vmrag_link.sources.listings import TreeFile
from vmrag_link.sources.readable import SourceText, convert_blob, decode_file_text

SOURCE = SourceSettings("notes", (".vmrag/notes/",), write=True)
FOLDER = SOURCE.folder

TRAPS = [
    "no",
    "yes",
    "null",
    "~",
    "1e3",
    "0x1f",
    "1_000",
    "2024-01-01",
    "a: b",
    "- a",
    "#a",
    "\t",
    "'",
    '"',
    "!x",
    "*a",
    "&a",
    "|",
]
values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(TRAPS)
    | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40)
)
keys = (st.sampled_from(TRAPS) | st.text(string.printable, min_size=1, max_size=20)).filter(lambda key: key != "id")
ids = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=255).filter(
    lambda text: not find_id_problem(text) and text.strip("/") == text
)
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\r"), min_size=1).filter(str.strip)
beginnings = st.sampled_from(
    ["", "---\n", "---\na: b\n---\n", "---", "\ufeff", "version https://git-lfs.github.com/spec/v1\n"]
)


@settings(max_examples=examples(400), deadline=None)
@given(ids, texts, beginnings, st.dictionaries(keys, values, max_size=4))
def test_note_is_read_back_unchanged(doc_id, text, beginning, metadata):
    content, path = beginning + text, notes.note_path(SOURCE, doc_id)
    try:
        whole = notes.render_note(SOURCE, path, doc_id, metadata, content)
    except ContentRefused:
        assert any(
            "\x85" in str(value) or not str(value).isprintable() for value in [*metadata, *metadata.values()]
        ) or (any("\n" in key for key in metadata))
        return
    claim = notes.read_claimed_id(decode_file_text(whole.encode()))
    assert notes.assign_ids(SOURCE, [path], {path: claim}) == {path: doc_id}
    file = TreeFile(path, "0" * 40, len(whole.encode()), handwritten=True, note_id=doc_id)
    document = documents.build_document(SOURCE, file, convert_blob(file, whole.encode()))
    assert (document.doc_id, document.content) == (doc_id, content)
    assert notes.parse_note(decode_file_text(whole.encode()), doc_id).metadata == metadata


@pytest.mark.parametrize(
    ("doc_id", "path"),
    [
        ("decisions/retry-policy", "decisions/retry-policy.md"),
        ("日本語/メモ", "日本語/メモ.md"),
        ("a.md", "a.md"),
        ("a.md.md", "a.md.md"),
        ("con", "con-1143da2b.md"),
        ("a: b", "a-b-75cd1899.md"),
        (".hidden", "hidden-9cd9a4cf.md"),
        ("dot./a", "dot-a-ebd3b0cd.md"),
    ],
)
def test_note_path_is_portable(doc_id, path):
    assert notes.note_path(SOURCE, doc_id).startswith(f"{FOLDER}/{path[:-12]}")
    assert notes.natural_path(SOURCE, doc_id) in ("", f"{FOLDER}/{path}")


@given(ids)
def test_note_path_is_short_and_below_the_folder(doc_id):
    path = notes.note_path(SOURCE, doc_id)
    assert path.startswith(f"{FOLDER}/")
    assert ".." not in path.split("/")
    assert len(path.encode()) < 255


def test_file_with_the_name_keeps_a_disputed_id():
    paths = [f"{FOLDER}/a.md", f"{FOLDER}/b.md", f"{FOLDER}/c.md"]
    claims = {paths[1]: "a", paths[2]: "d"}
    assigned = notes.assign_ids(SOURCE, paths, claims)
    assert assigned == {paths[0]: "a", paths[1]: "b", paths[2]: "d"}
    assert notes.disputed_ids(assigned, claims) == {paths[1]: "a"}


def test_notes_with_one_claimed_id_get_different_ids():
    paths = [f"{FOLDER}/a.md", f"{FOLDER}/b.md", f"{FOLDER}/c.md", f"{FOLDER}/x"]
    claims = {paths[0]: "x", paths[1]: "x", paths[2]: "b"}
    assigned = notes.assign_ids(SOURCE, paths, claims)
    assert len(set(assigned.values())) == len(paths)
    assert assigned[paths[3]] == "x"


@pytest.mark.parametrize("front", ["id: [a]", "id: {a: b}", "id: true", "id: ''", "id: null", "no: id", "id a"])
def test_front_matter_without_a_legal_id_claims_none(front):
    assert notes.read_claimed_id(f"---\n{front}\n---\ntext") == ""


def test_metadata_of_a_note_cannot_be_called_id():
    with pytest.raises(ContentRefused, match="'id'"):
        notes.render_note(SOURCE, f"{FOLDER}/a.md", "a", {"id": "b"}, "text")


@pytest.mark.parametrize(
    ("text", "slug"),
    [("We chose Pagefind, because …", "we-chose-pagefind-because"), ("日本語 のメモ", "日本語-のメモ"), ("!?", "note")],
)
def test_slug_keeps_letters_of_every_script(text, slug):
    assert notes.make_slug(text) == slug


def test_note_is_titled_by_its_first_line():
    file = TreeFile(f"{FOLDER}/a.md", "0" * 40, 10, note_id="a")
    assert documents.build_document(SOURCE, file, SourceText("- Use **uv**\nbecause")).title == "Use **uv**"


def test_slug_of_endless_marks_takes_a_moment():
    start = time.process_time()
    assert notes.make_slug("word" + "\u0301\u0327" * 200_000).startswith("wor")
    assert time.process_time() - start < 1
