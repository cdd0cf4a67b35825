"""Citations in the text of a note."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.sources.citations import MAX_CITATIONS, Citation, find_citations

NOTE = ".vmrag/notes/decisions/auth.md"


def list_places(text: str, note: str = NOTE) -> list[str]:
    return [citation.name_place(citation.paths[0]) for citation in find_citations(note, text)]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("See src/auth.py.", ["src/auth.py"]),
        ("See src/auth.py:10-42, and src/auth.py:10.", ["src/auth.py:10-42", "src/auth.py:10"]),
        ("(src/auth.py#L10-L20); 'src/a.py#L7'", ["src/auth.py:10-20", "src/a.py:7"]),
        ("src/a.py#L3C1-L5C9 src/a.py#L7-9 src/a.py:3:14 src/a.py:9-2", ["src/a.py:3-5", "src/a.py:7-9", "src/a.py:3", "src/a.py:2-9"]),
        ("`src/auth.py:10-42` and ``lib/a`b.c``", ["src/auth.py:10-42", "lib/a`b.c"]),
        ("`Makefile`, `bin/run` and README.md", ["Makefile", "bin/run", "README.md"]),
        ("`app/[id]/(group)/page file.tsx:3`", ["app/[id]/(group)/page file.tsx:3"]),
        ("tests/test_a.py::test_login, src/a.py:login, docs/a.md#set-up", ["tests/test_a.py", "src/a.py", "docs/a.md"]),
        ("./src/a.py src/übung.py", ["src/a.py", "src/übung.py"]),
        ("**src/a.py** — “src/b.py”", ["src/a.py", "src/b.py"]),
        ("> - src/quoted.py\n\n    src/in_list.py:3", ["src/quoted.py"]),
        ("- item\n\n    src/in_list.py:3", ["src/in_list.py:3"]),
    ],
)  # fmt: skip
def test_citation_is_found_in_prose_and_code_spans(text: str, places: list[str]):
    cited = list_places(text)
    assert [place for place in cited if place in places] == places
    assert len(cited) - len(places) <= text.count(" "), "only single words of a code span come on top"


@pytest.mark.parametrize(
    ("text", "paths", "lines"),
    [
        ("[x](../../../src/a.py#L3)", ("src/a.py",), (3, 3)),
        ("[x](src/a.py#L3-L5 'title')", (".vmrag/notes/decisions/src/a.py", "src/a.py"), (3, 5)),
        ("[x](/docs/a%20b.md)", ("docs/a b.md",), (0, 0)),
        ("[x](<../a b.md>)", (".vmrag/notes/a b.md",), (0, 0)),
        ("[x](../../../app/(group)/page.tsx:7)", ("app/(group)/page.tsx",), (7, 7)),
        ("![x](../../../img/a.png?raw=true)", ("img/a.png",), (0, 0)),
        ("[ref]: ../../../src/a.py 'title'", ("src/a.py",), (0, 0)),
    ],
)
def test_link_is_relative_to_note_or_root(text: str, paths: tuple[str, ...], lines: tuple[int, int]):
    [citation] = [citation for citation in find_citations(NOTE, text) if paths[0] in citation.paths]
    assert citation.paths[: len(paths)] == paths
    assert (citation.first, citation.last) == lines


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/src/a.py#L3",
        "<https://example.org/src/a.py>",
        "[x](https://example.org/blob/main/src/a.py#L3)",
        "[x](mailto:ada@example.org) [y](//example.org/src/a.py) [z](#src/a.py)",
        "```sh\npython src/a.py\n```",
        "~~~\nsrc/a.py\n```\nsrc/a.py\n~~~",
        "````\n```\nsrc/a.py\n````",
        "> ```\n> src/a.py\n> ```",
        "text\n\n    python src/a.py\n\n    src/a.py",
        "text\n\n\tpython src/a.py",
        "/etc/src/a.py ~/src/a.py $HOME/src/a.py --file=src/a.py -- ../src/a.py src/../../src/a.py",
        "[x](../../../../src/a.py)",
        "[x](%2e%2e/%2e%2e/%2e%2e/%2e%2e/src/a.py) [y](src%00/a.py) [z](src%0a/a.py)",
        ".git/config .GIT/config src//a.py src/ src\\a.py",
        "`src/\x1ba.py` [x](</src/\u202ea.py>) [y](/src/%1ba.py)",
        NOTE,
        "[self](auth.md)",
        "decisions/" + "a" * 600 + ".md",
        "Makefile v1.2.3 and-or",
    ],
)
def test_text_cites_nothing(text: str):
    places = list_places(text)
    assert not [place for place in places if place.removesuffix(":3") in ("src/a.py", "config", NOTE)], places
    assert all(place.isprintable() and not place.startswith(("/", "-", "../", ".git/")) for place in places)


@pytest.mark.parametrize(
    "piece",
    ["`", "](", "[a]:", "a", "://", "](a(b)", "`a``b```c", "[", "](<", "(a/", "x:1", "\n", "`\n", "```\n", " ", "](    ", "a://", "src/a.py:1 ", "<!--", ">"],
)  # fmt: skip
def test_long_text_is_read_in_linear_time(piece: str):
    started = time.process_time()
    find_citations("note.md", piece * (1_000_000 // len(piece)))
    assert time.process_time() - started < 10


def test_note_has_limited_number_of_citations():
    text = "\n".join(f"src/file{number}.py:{number + 1}" for number in range(100_000))
    started = time.process_time()
    assert len(find_citations("note.md", text)) == MAX_CITATIONS
    assert time.process_time() - started < 10


@given(st.text(alphabet=st.sampled_from("ab/.:#L1-` \n[]()<>~\\%2eé\x1b\u202e"), max_size=80))
def test_any_text_gives_paths_in_the_repository(text: str):
    for citation in find_citations(NOTE, text):
        assert isinstance(citation, Citation)
        assert (citation.first > 0) == (citation.last > 0)
        assert citation.first <= citation.last
        for path in citation.paths:
            assert path.isprintable()
            assert path != NOTE
            assert not {"", ".", "..", ".git"}.intersection(path.split("/"))
