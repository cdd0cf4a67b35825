"""A project's documents, without a knowledge base."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pace import slack
from vmrag_link.conversion import front_matter
from vmrag_link.embedding.hash_model import HashModel
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import Document, encode_canonical_json
from vmrag_link.toolsets.compounding import doc_types, project, retrieval, sentences
from vmrag_link.toolsets.compounding.doc_types import BUILT_IN, DocType, SchemaUnusable
from vmrag_link.toolsets.compounding.folder import MAX_FILES, Patterns, scan_folder
from vmrag_link.toolsets.compounding.promote import NotEditable, with_key


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("**/*.md", "a.md", True),
        ("**/*.md", "a/b/c.md", True),
        ("*.md", "a/b.md", False),
        ("docs/**/x?.md", "docs/x1.md", True),
        ("docs/**/x?.md", "docs/a/b/x.md", False),
        ("**/drafts/**", "a/drafts/b.md", True),
        ("**/drafts/**", "drafts.md", False),
        ("a/[bc].md", "a/c.md", True),
        ("./a/*.md", "a/b.md", True),
    ],
)
def test_patterns_are_those_of_other_tools(pattern: str, path: str, matches: bool) -> None:
    assert Patterns((pattern,)).match_path(path) == matches
    assert Patterns(("**",), (pattern,)).match_path(path) != matches


def test_any_pattern_is_cheap() -> None:
    started = time.perf_counter()
    assert not Patterns(("**/" * 60 + "*a" * 60,)).match_path("/".join(["a" * 100] * 60) + "b")
    assert time.perf_counter() - started < 1 * slack()


def test_folder_is_scanned_without_following_links(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    for name in ("a.md", "deep/er/b.md", "c.txt", ".hidden/d.md", "node_modules/e.md"):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text("text")
    (docs / "link.md").symlink_to("/etc/hosts")
    (docs / "folder").symlink_to(tmp_path)
    (docs / "x\ny.md").write_text("text")
    files = scan_folder(docs, Patterns(exclude=("**/node_modules/**",)), lambda _: set())
    assert [*files.stamps] == ["a.md", "deep/er/b.md"]
    assert [(skipped_file.path, skipped_file.reason) for skipped_file in files.skipped] == [
        ("link.md", "is a symbolic link"),
        ("x\\ny.md", "its path has control characters"),
    ]
    assert scan_folder(tmp_path / "absent", Patterns(), lambda _: set()).stamps == {}
    assert MAX_FILES > 1000


# -- front matter ----------------------------------------------------------------------------------

EDITED = [
    (b"---\ntitle: A\n---\nText\n", b"---\ntitle: A\nlevel: new\n---\nText\n"),
    (
        b"---\r\nlevel:   old  # why\r\ntitle: A\r\n---\r\nText",
        b"---\r\nlevel:   new  # why\r\ntitle: A\r\n---\r\nText",
    ),
    (b"---\nlevel:\ntitle: A\n---\n", b"---\nlevel: new\ntitle: A\n---\n"),
    (b'---\nlevel: "old"\n...\nText', b"---\nlevel: new\n...\nText"),
    (b"---\n# nothing\n---\nText", b"---\n# nothing\nlevel: new\n---\nText"),
    (b"# Title\n\nlevel: old\n", b"---\nlevel: new\n---\n# Title\n\nlevel: old\n"),
    (b"", b"---\nlevel: new\n---\n"),
    (b"\xef\xbb\xbf---\nsub:\n  level: old\n---\n", b"\xef\xbb\xbf---\nsub:\n  level: old\nlevel: new\n---\n"),
]


@pytest.mark.parametrize(("before", "after"), EDITED)
def test_key_is_set_and_every_other_byte_stays(before: bytes, after: bytes) -> None:
    assert with_key(before, "level", "new") == after
    assert with_key(after, "level", "new") == after


@pytest.mark.parametrize(
    "data",
    [b"---\n{title: A}\n---\n", b"---\nlevel: [a]\n---\n", b"---\na: 1\n a: 2\n---\n", b"\xff", b"---\nx: &a 1\n---\n"],
)
def test_with_key_rejects_uneditable_text(data: bytes) -> None:
    with pytest.raises(NotEditable):
        with_key(data, "level", "new")


@given(
    st.dictionaries(st.sampled_from(["a", "b", "level"]), st.sampled_from(["x", "'y'", '"z"', "[1, 2]", "1"])),
    st.text(alphabet="ab \n#-", max_size=40),
)
def test_edit_is_right_or_refused(keys: dict[str, str], text: str) -> None:
    data = "---\n" + "".join(f"{key}: {value}\n" for key, value in keys.items()) + "---\n" + text
    before, content = front_matter.split_front_matter(data)
    try:
        after = front_matter.split_front_matter(with_key(data.encode(), "level", "new").decode())
    except NotEditable:
        assert keys.get("level") == "[1, 2]"
        return
    assert after == (before | {"level": "new"}, content if keys else text)


# -- types -----------------------------------------------------------------------------------------


def test_front_matter_may_lack_usual_fields_unless_strict() -> None:
    problem = BUILT_IN[0]
    assert doc_types.find_flaws({}, problem, strict=False) == []
    assert [
        flaw.partition(" ")[0] for flaw in doc_types.find_flaws({"promotion_level": "grand"}, problem, strict=False)
    ] == ["promotion_level"]
    whole = {"doc_type": "problem", "title": "T", "date": "2026-13-01", "summary": 5, "significance": "much"}
    flaws = doc_types.find_flaws(whole, problem, strict=True)
    assert [text.partition(" ")[0] for text in flaws] == ["summary", "date", "significance"]
    assert len(doc_types.find_flaws({}, problem, strict=True)) == 5


def checked(schema: dict[str, Any], fields: dict[str, Any]) -> list[str]:
    text = doc_types.read_schema(encode_canonical_json(schema), is_json=True)
    return doc_types.find_flaws(fields, DocType("x", "", "x", text), strict=False)


def test_untrusted_schema_reads_nothing_and_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("it was fetched"))
    started = time.perf_counter()
    [said] = checked({"$ref": "http://127.0.0.1:9/schema.json"}, {"a": 1})
    assert "cannot be applied" in said
    layers = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    [said] = checked({"$defs": layers | {"l40": {}}, "$ref": "#/$defs/l0"}, {"a": 1})
    assert "steps" in said
    assert "cannot be applied" in checked({"$ref": "#"}, {"a": 1})[0]
    evil = {"properties": {"a": {"pattern": "^(a+)+$"}}}
    assert checked(evil, {"a": "a" * 50 + "!"}) == [f"a: '{'a' * 50}!' does not match '^(a+)+$'"]
    assert "cannot be applied" in checked({"patternProperties": {"^(a+)+$": {}}}, {"a": "x"})[0]
    assert time.perf_counter() - started < 5 * slack()


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
LAYERS = {f"l{n}": {"$schema": DRAFT_7, "allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
UNEVALUATED = functools.reduce(lambda inner, _: {"anyOf": [inner], "unevaluatedProperties": True}, range(40), {})


@pytest.mark.parametrize(
    ("schema", "fields", "said"),
    [
        ({"$defs": LAYERS | {"l40": {}}, "$ref": "#/$defs/l0"}, {"a": 1}, "a part of it has another $schema"),
        ({"$schema": DRAFT_7, "$defs": LAYERS | {"l40": {}}, "allOf": [{"$ref": "#/$defs/l0"}]}, {"a": 1}, "steps"),
        (UNEVALUATED, {"a": 1}, "steps"),
        ({"additionalProperties": False, "patternProperties": {"^(a+)+$": {}}}, {"a" * 40 + "!": 1}, "patternProp"),
        (
            {"anyOf": [{"additionalProperties": False, "patternProperties": {"^(a+)+$": {}}}]},
            {"a" * 40 + "!": 1},
            "patternProp",
        ),
        ({"properties": {"a": {"multipleOf": 1e-300}}}, {"a": 10**400}, "cannot be applied"),
        ({"properties": {"a": {"$id": "http://[", "$ref": "x"}}}, {"a": 1}, "cannot be applied"),
    ],
    ids=["another draft", "its own draft", "unevaluated", "beside", "beside, nested", "overflow", "no address"],
)
def test_schema_parts_stay_within_their_bounds(schema: dict[str, Any], fields: dict[str, Any], said: str) -> None:
    """They took 2^40 steps, or ended in the library's own error."""
    started = time.perf_counter()
    assert said in checked(schema, fields)[0]
    assert time.perf_counter() - started < 10 * slack()


@pytest.mark.parametrize(
    "schema",
    [{"$schema": 5}, {"$schema": []}, {"$schema": "http://["}, {"pattern": "a{99999999999999999999}"}],
)
def test_read_schema_rejects_unusable_schemas(schema: dict[str, Any]) -> None:
    with pytest.raises(doc_types.SchemaUnusable):
        doc_types.read_schema(encode_canonical_json(schema), is_json=True)


def test_schema_may_refer_to_itself_and_name_its_draft() -> None:
    schema = {"$schema": DRAFT_7, "properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}}}
    assert checked(schema, {"a": {"a": {"b": "x"}}}) == ["a.a.b: 'x' is not of type 'integer'"]


def test_schema_accepts_json_and_yaml_only() -> None:
    assert doc_types.read_schema("type: object\nrequired: [a]\n", is_json=False) == '{"required":["a"],"type":"object"}'
    for text in ("[]", "type: 5", "a: &b 1", "", "{"):
        with pytest.raises(SchemaUnusable):
            doc_types.read_schema(text, is_json=False)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        "{}",
        '{"project_name": "Rivers"}',
        '{"project_name": "r", "retrieval": {"min_relevance_score": 2}}',
        '{"project_name": "r", "retrieval": {"max_results": "many"}}',
        '{"project_name": "r", "custom_doc_types": [{"name": "x"}]}',
        "[" * 100_000,
    ],
)
def test_project_rejects_invalid_configuration(tmp_path: Path, text: str) -> None:
    (tmp_path / "project.json").write_text(text)
    with pytest.raises(UsageInvalid):
        project.read_config(tmp_path / "project.json")


def test_configuration_reports_keys_without_meaning(tmp_path: Path) -> None:
    (tmp_path / "project.json").write_text(
        '{"$schema": "x", "project_name": "r", "retrieval": {"k": 1}, "colour": "blue", "external_docs": {"path": "d", "a": 1}}'
    )
    assert project.read_config(tmp_path / "project.json").unknown == ("retrieval.k", "colour", "external_docs.a")


# -- links and sentences ---------------------------------------------------------------------------


def document(doc_id: str, text: str, **metadata: Any) -> Document:
    return Document("c", doc_id, doc_id, text, "", encode_canonical_json(metadata))


def test_links_are_relative_to_document_folder_or_root() -> None:
    documents = {"a.md", "deep/b.md", "deep/c d.md", "e.md", "f.md"}
    text = (
        "[b](deep/b.md#part) ![c](<deep/c%20d.md>) [up](../../../etc/passwd) [web](https://x.example/a.md)\n"
        '[root](/e.md) [docs](./docs/f.md "title") [none](absent.md) [self](a.md)\n\n[ref]: deep/b\n'
    )
    assert retrieval.list_references(document("a.md", text, related_docs=["f.md", 5]), documents, docs="docs") == [
        "f.md",
        "deep/b.md",
        "deep/c d.md",
        "e.md",
    ]
    back = document("deep/b.md", "[a](../a.md) [c](c%20d.md)")
    assert retrieval.list_references(back, documents, docs="docs") == ["a.md", "deep/c d.md"]


def test_links_are_followed_breadth_first_each_document_once() -> None:
    rows = {
        stored_document.doc_id: stored_document
        for stored_document in (
            document("a.md", "[](b.md) [](c.md)"),
            document("b.md", "[](d.md)"),
            document("c.md", "[](a.md)"),
            document("d.md", ""),
        )
    }

    def found(depth: int, most: int) -> list[tuple[str, str]]:
        return [
            (follow_link.doc_id, follow_link.linked_from)
            for follow_link in retrieval.follow_links(
                ["a.md"], rows.get, rows.keys(), docs="docs", depth=depth, limit=most
            )
        ]

    assert found(2, 9) == [("b.md", "a.md"), ("c.md", "a.md"), ("d.md", "b.md")]
    assert (found(1, 9), found(2, 1), found(0, 9)) == (found(2, 9)[:2], found(2, 9)[:1], [])


PROSE = """\
# The heading is no sentence at all

The gauge reported nothing in January
because its battery froze. Too short. A third sentence says nothing about it!

* The first item of a list is prose, too.
* The second item speaks of frozen batteries.

```sh
echo "The battery froze in a program."
```

| The table | about frozen batteries | is none. |
"""


def test_sentences_are_pieces_of_the_text_and_never_of_code() -> None:
    result = [*sentences.split_sentences(PROSE)]
    assert [passage.text for passage in result] == [
        "The gauge reported nothing in January\nbecause its battery froze.",
        "A third sentence says nothing about it!",
        "The first item of a list is prose, too.",
        "The second item speaks of frozen batteries.",
    ]
    assert all(PROSE[passage.start :].startswith(passage.text) for passage in result)
    assert sentences.find_nearest_sentences(HashModel(), "why did the battery freeze", PROSE)[0] in PROSE
    assert sentences.find_nearest_sentences(HashModel(), "anything", "# Only a heading\n") == []


@given(st.text(alphabet="ab. !\n#`-*|", max_size=300))
def test_every_sentence_is_part_of_the_text(text: str) -> None:
    assert all(
        text[sentence.start : sentence.start + len(sentence.text)] == sentence.text
        for sentence in sentences.split_sentences(text)
    )
