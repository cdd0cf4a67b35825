"""The page of `vmrag report --html`: its parts, and the effect of untrusted texts on it."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tests.support.reports import document, report, revision
from vmrag_link import terminal_text
from vmrag_link.errors import IndexExtraMissing
from vmrag_link.golden.queries import RankedChunk
from vmrag_link.ops.report import html, rankings
from vmrag_link.ops.report.records import (
    AnswerChange,
    AnswerText,
    ComparedQueries,
    FieldChange,
    Growth,
    KnowledgeReport,
    KnowledgeSize,
    ListedQuery,
    QueryChange,
    ReportedCollection,
    ReportedDocument,
    ReportEnd,
    RevisionList,
    TextChange,
)
from vmrag_link.ops.verify.verify_commits import PinFinding
from vmrag_link.sources.outdated import CitingNote
from vmrag_link.worddiff import Piece
from vmrag_link.workspace.history.word_diff import Words

OPAQUE_ID = "0f8fad5b-d9cb-469f-a165-70867728950e"

Texts = Callable[[str], str]
"""Function that returns the text for a place of a report, by the name of the place."""

VOID = {"meta", "input"}
TAGS = (
    "html head meta title style body a header p h1 h2 h3 h4 bdi span div dl dt dd nav ul ol li main section details"
    " summary ins del i table thead tbody tr th td input button output footer code script strong"
)
ATTRIBUTES = (
    "aria-hidden aria-label aria-labelledby aria-live charset class content dir hidden href http-equiv id lang name open"
    " placeholder role scope type value"
)
HOSTILE = (
    "</script><script>alert(1)</script>",
    "</style></title></textarea><plaintext>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)' x='",
    "javascript:alert(1)",
    "<!-- --> ]]> <![CDATA[ <?php ?>",
    "{{ 7 * 7 }} {% include 'page.css' %} {# #}",
    "&lt;b&gt; &#60; &amp;",
    "\u202etxt.exe \u2066isolated \u200f",
    "nul \x00 escape \x1b[31m bell \x07 delete \x7f",
    "::error::x ##[set-output name=x]",
    "</li></ul></details></main><table><tr><p>",
)


def pages(texts: Texts) -> KnowledgeReport:
    """Return a report in which `texts` provides each untrusted text by its place."""
    opaque = f"{texts('library')}/{OPAQUE_ID}"
    chunks = [RankedChunk(f"{texts('collection')}/{texts('id')}", number, 1 / (number + 1)) for number in range(3)]
    changes = TextChange(
        tuple(Piece(op, f"{op} {texts('text')}") for op in ("equal", "delete", "insert", "omitted")), left_out=7
    )
    fields = (FieldChange(texts("field"), changes),)
    some = [
        document(1, (texts("collection"), texts("id")), None, texts("text"), title=texts("title")),
        document(2, (texts("collection"), texts("other")), texts("text"), None, title=texts("title")),
        document(3, (texts("collection"), texts("moved")), "a", "b", old=(texts("old"), texts("id"))),
    ]
    both = msgspec.structs.replace(
        document(4, (texts("collection"), texts("changed")), "a", "b"), fields=fields, text=changes
    )
    made = revision(3, f"{texts('subject')}\n\n{texts('body')}", author=texts("author"), subject=texts("commit"))
    query = QueryChange(
        texts("query"),
        3,
        "ranking",
        (chunks[0], chunks[1]),
        (chunks[1], chunks[2], RankedChunk(opaque, 0, 0.1)),
        texts("problem"),
        texts("problem"),
        (texts("missed"),),
        (texts("missed"),),
    )
    return report(
        [msgspec.structs.replace(changed_document, words=Words(3, 1)) for changed_document in (*some, both)],
        base=texts("base"),
        head=texts("head"),
        queries=ComparedQueries(
            texts("file"),
            9,
            (query, msgspec.structs.replace(query, line=4, change="scores")),
            "",
            texts("hint"),
            answers=(
                AnswerChange(texts("query"), 3, 2, AnswerText(texts("says"), "a"), AnswerText(texts("says"), "b")),
            ),
            added=(ListedQuery(texts("new query"), 5, (texts("lacking"),)),),
            removed=(ListedQuery(texts("removed query"), 6),),
            titles={opaque: texts("known title")},
        ),
        gained=[made],
        lost=RevisionList((made,), 12),
        missing=2,
        collections=(ReportedCollection("modified", texts("collection"), fields),),
        findings=(
            PinFinding("KNOWLEDGE_DROPPED", "error", "ab" * 20, texts("message"), texts("hint")),
            PinFinding("MOVED_BACK", "information", "cd" * 20, texts("message"), ""),
        ),
        citing=(CitingNote(texts("note"), (texts("cited"), "src/a.py:3")),),
        size=KnowledgeSize(Growth(9, 12), Growth(100, 50), Growth(40, 44)),
    )


def written(shown: KnowledgeReport) -> str:
    """The page; the report is closed then."""
    with shown:
        return "".join(html.render_page(shown))


def tree(page: str) -> LexborHTMLParser:
    return LexborHTMLParser(page)


def elements(page: str) -> list[LexborNode]:
    return [element for element in tree(page).css("*") if element.tag]


def skeleton(page: str) -> list[tuple[str, tuple[tuple[str, str | None], ...]]]:
    """All elements with their attributes, without texts."""
    return [(str(element.tag), tuple(element.attributes.items())) for element in elements(page)]


class Nesting(HTMLParser):
    """The tags as they are written, with their depth; an end that is not its begin's fails."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, int]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, len(self._open)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def depths(page: str) -> list[tuple[str, int]]:
    """The elements as a browser understands the page, with their depth."""

    def depth(node: LexborNode) -> int:
        number = -1
        while node.parent is not None:
            node, number = node.parent, number + 1
        return number

    return [(str(element.tag), depth(element)) for element in elements(page)]


def tame(place: str) -> str:
    return f"some {place}"


def beginning() -> KnowledgeReport:
    """Before it nothing was pinned, and base has moved on since."""
    nothing = ReportEnd("merge base", "ab" * 20, None)
    return report([document(1, ("c", "d"), None, "text")], start=nothing, missing=3)


@pytest.mark.parametrize("made", [lambda: pages(tame), report, beginning], ids=["full", "empty", "beginning"])
def test_ids_are_unique_and_every_link_within_the_page_leads_somewhere(made: Callable[[], KnowledgeReport]) -> None:
    result = elements(written(made()))
    ids = [element.attributes["id"] for element in result if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    links = [element.attributes["href"] or "" for element in result if "href" in element.attributes]
    labels = [element.attributes["aria-labelledby"] for element in result if "aria-labelledby" in element.attributes]
    assert {link.removeprefix("#") for link in links} | set(labels) <= set(ids)
    assert all(link.startswith("#") for link in links)
    assert len(links) > len(labels) > 3


@pytest.mark.parametrize("made", [lambda: pages(tame), report, beginning], ids=["full", "empty", "beginning"])
def test_browser_understands_the_nesting_as_it_is_written(made: Callable[[], KnowledgeReport]) -> None:
    page = written(made())
    assert Nesting(page).found == depths(page)


def test_headings_leave_out_no_level() -> None:
    levels = [
        int(str(element.tag)[1])
        for element in elements(written(pages(tame)))
        if re.fullmatch("h[1-6]", str(element.tag))
    ]
    assert levels[0] == levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_page_has_only_known_elements_and_attributes() -> None:
    result = elements(written(pages(tame)))
    assert {str(element.tag) for element in result} == set(TAGS.split())
    assert {name for element in result for name in element.attributes} == set(ATTRIBUTES.split())


@pytest.mark.parametrize("text", HOSTILE)
def test_untrusted_text_adds_no_elements_or_attributes(text: str) -> None:
    page = written(pages(lambda place: f"{place} {text}"))
    assert skeleton(page) == skeleton(written(pages(tame)))
    assert Nesting(page).found == depths(page)


@pytest.mark.parametrize("text", HOSTILE)
def test_untrusted_text_is_visible_in_the_page(text: str) -> None:
    places: set[str] = set()
    page = written(pages(lambda place: places.add(place) or f"{place} {text}"))
    body = tree(page).body
    assert body is not None
    said = body.text()
    missing = {place for place in places if f"{place} {terminal_text.escape_controls(text)}" not in said}
    assert missing <= {"file", "hint"}  # of queries that were compared
    assert page == terminal_text.escape_controls(page)


def test_changed_blank_is_drawn() -> None:
    page = written(report([document(1, ("a", "b"), "one two\r\nend \n", "one  two\nend\n")]))
    result = [(element.tag, element.text()) for element in tree(page).css(".text ins, .text del")]
    assert result == [("del", "·"), ("ins", "··"), ("del", "\\r↵\n"), ("ins", "↵\n"), ("del", "·↵\n"), ("ins", "↵\n")]


def test_right_to_left_name_is_isolated() -> None:
    page = written(report([document(1, ("c", "\u05de.md"), "a", "b", title="\u05db")]))
    assert [element.attributes.get("dir") for element in tree(page).css("h4 bdi")] == ["ltr", None]


# -- what a browser may do


def test_page_loads_nothing_and_runs_only_its_own_script_and_style() -> None:
    page = written(pages(tame))
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bsrc=|\son\w+=|\sstyle=", page)
    tags = {tag: re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL) for tag in ("style", "script")}
    hashes = {}
    for tag, (text,) in tags.items():
        hashes[tag] = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}';"
        " base-uri 'none'; form-action 'none'"
    )
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_page_without_a_script_offers_nothing_that_needs_one() -> None:
    page = tree(written(pages(tame)))
    [tools] = page.css(".tools")
    assert "hidden" in tools.attributes
    inside = {element.mem_id for element in tools.css("*")}
    assert all(element.mem_id in inside for element in page.css("button, input, output"))


def browser() -> str:
    result = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not result:
        pytest.skip("needs the program chromium on PATH")
    return result


def opened(page: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Open the page in a browser; return it after its script, with the console on stderr."""
    path = folder / "report.html"
    path.write_text(page)
    argv = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    argv += ["--no-first-run", f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--dump-dom"]
    return subprocess.run([*argv, path.as_uri()], capture_output=True, text=True, check=True, timeout=120)


@pytest.mark.parametrize("texts", [tame, lambda place: f"{place} {' '.join(HOSTILE)}"], ids=["tame", "hostile"])
def test_browser_has_nothing_to_complain_of_and_runs_the_script(tmp_path: Path, texts: Texts) -> None:
    result = opened(written(pages(texts)), tmp_path)
    assert "CONSOLE" not in result.stderr
    [tools] = tree(result.stdout).css(".tools")
    assert "hidden" not in tools.attributes


def test_browser_refuses_another_script(tmp_path: Path) -> None:
    """So the test before would see a wrong hash."""
    result = opened(written(pages(tame)).replace('"use strict";', '"use strict" ;'), tmp_path)
    assert "CONSOLE" in result.stderr
    [tools] = tree(result.stdout).css(".tools")
    assert "hidden" in tools.attributes


# -- colours


def luminance(colour: str) -> float:
    """Return the luminance of `#rrggbb` by the definition of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_text_has_the_contrast_required_by_wcag(scheme: int) -> None:
    style = html.read_part("page.css")
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]))
    pairs = [(ink, ground) for ink in ("ink", "quiet", "link") for ground in ("paper", "card")]
    pairs += [(f"{name}-ink", name) for name in ("new", "gone", "edit", "move")]
    pairs += [("new-ink", "card"), ("gone-ink", "card")]
    for ink, ground in pairs:
        light, dark = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


# -- many documents


def many(number: int) -> Iterator[ReportedDocument]:
    """In five collections, each with 10,000 characters."""
    one = document(1, ("c", "d"), "Keys rotate every 90 days.", f"Keys rotate every 30 days.{' Word.' * 1_650}")
    for at in range(1, number + 1):
        yield msgspec.structs.replace(one, number=at, collection=f"c{at * 5 // (number + 1)}", doc_id=f"{at:05}.md")


def test_two_thousand_documents_are_written_while_they_are_read() -> None:
    written(report())  # so that the template is compiled
    length = most_at_once = 0
    with report(many(2_000)) as shown:
        tracemalloc.start()
        try:
            for part in html.render_page(shown):
                length, most_at_once = length + len(part), max(most_at_once, len(part))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert length > 20_000_000
    assert max(peak, most_at_once) < length / 8, (peak, most_at_once)


def test_many_documents_are_closed_and_listed_by_collection() -> None:
    page = tree(written(report(many(200))))
    assert len(page.css("details.document")) == 200
    assert not page.css("details[open]")
    assert [len(element.css(".line")) for element in page.css("nav > details")] == [40, 40, 40, 40, 40]
    assert len(tree(written(report(many(3)))).css("details.document[open]")) == 3
    assert not tree(written(report(many(5)))).css("main details[open]")  # they have many words


def test_page_limits_documents_and_shares_them_among_collections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["a"] * 2 + ["b"] * 50 + ["c"] * 9 + ["d"]
    some = [document(at, (name, f"{at}.md"), "x", "y") for at, name in enumerate(names, start=1)]
    monkeypatch.setattr(html, "MAX_DOCUMENTS", 20)
    page = tree(written(report(some)))
    shown = [len(element.css(".document")) for element in page.css(".collection")]
    assert (shown, sum(shown)) == ([2, 8, 8, 1], 19)
    ids = [element.attributes["id"] for element in page.css(".document")]
    assert ids == [f"d{at}" for at in (1, 2, *range(3, 11), *range(53, 61), 62)]
    said = [element.text() for element in page.css(".collection > p")]
    assert said == [
        "42 more documents of this collection differ and would make this page too long.",
        "1 more document of this collection differs and would make this page too long.",
    ]
    assert page.css_first("nav a[href='#documents'] .count").text() == "62"


def test_page_shows_missing_pin_and_advanced_base() -> None:
    page = tree(written(beginning()))
    assert [element.text() for element in page.css(".end .subject")] == ["This place has no pin.", "Rotation"]
    assert page.css_first(".basis").text() == (
        "Compared: the merge base abababababab, where feature left main, with feature. main has moved on by 3 revisions, which the report leaves out."
    )


def test_page_counts_omitted_characters_of_a_long_text() -> None:
    [note] = tree(written(report([document(1, ("a", "b"), None, "text", left_out=12_345)]))).css(".document .note")
    assert note.text() == "12,345 more characters of the difference are left out."


# -- what is shown


def test_page_shows_both_rankings_with_each_move() -> None:
    old = tuple(RankedChunk(f"c/{name}", 0, 1 / (at + 1)) for at, name in enumerate("abcd"))
    new = tuple(RankedChunk(f"c/{name}", 0, 1 / (at + 1)) for at, name in enumerate("bacxe"))
    changed = QueryChange("keys?", 3, "ranking", old, new, "", "", (), ("c/d is not among the first 5.",))
    page = tree(written(report(queries=ComparedQueries(".vmrag/queries.yaml", 4, (changed,)))))
    assert [element.text() for element in page.css(".ranking thead th")] == ["Place", "main", "feature"]
    rows = [
        [" ".join(cell.text().split()) for cell in row.css("th, td")]
        for row in page.css_first(".ranking tbody").css("tr")
    ]
    assert rows == [
        ["1", "c/a #0 1", "c/b #0 1 ▲ 1up 1"],
        ["2", "c/b #0 0.5", "c/a #0 0.5 ▼ 1down 1"],
        ["3", "c/c #0 0.333333", "c/c #0 0.333333 =same place"],
        ["4", "c/d #0 0.25 gone", "c/x #0 0.25 new"],
        ["5", "", "c/e #0 0.2 new"],
    ]
    assert page.css_first(".query h3").text().split("\n")[1] == "No longer as expected"
    assert "feature: c/d is not among the first 5." in page.css_first(".misses").text()


def test_renumbered_chunk_is_compared_with_the_next_of_its_document() -> None:
    before = tuple(RankedChunk(f"c/{name}", chunk, 1.0) for name, chunk in (("a", 4), ("b", 0), ("a", 5), ("d", 1)))
    after = tuple(RankedChunk(f"c/{name}", chunk, 1.0) for name, chunk in (("a", 5), ("new", 2), ("a", 7), ("a", 9)))
    query = QueryChange("q", 1, "ranking", before, after, "", "", (), ())
    rows = rankings.build_rank_rows(query, {"c/b": "c/new"})
    assert [row.gone for row in rows] == [False, False, False, True]
    assert [row.was for row in rows] == [(3, True), (2, False), (1, False), None]
    page = written(
        report([document(1, ("c", "new"), "x", "x", old=("c", "b"))], queries=ComparedQueries("f", 1, (query,)))
    )
    assert [element.text() for element in tree(page).css(".ranking .mark .unseen")] == [
        "up 2",
        "same place, with another chunk",
        "down 2, with another chunk",
    ]


def test_worst_of_many_queries_come_first_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MAX_SHOWN", 2)
    monkeypatch.setattr(rankings, "MAX_PLACES", 3)
    long = tuple(RankedChunk("c/d", chunk, 1.0) for chunk in range(8))
    plain = QueryChange("plain", 1, "ranking", long, long[::-1], "", "", (), ())
    worse = msgspec.structs.replace(plain, query="worse", missed_after=("c/d is not the first.",))
    scores = msgspec.structs.replace(plain, query="scores", change="scores")
    given = ComparedQueries("f", 9, (plain, plain, worse, scores, scores, scores))
    page = tree(written(report(queries=given)))
    assert [element.text().split("\n")[0] for element in page.css(".query h3")] == [
        "worse",
        "plain",
        "scores",
        "scores",
    ]
    assert [len(element.css("tr")) for element in page.css(".ranking tbody")] == [3] * 4
    places = "5 more places not shown"
    assert [element.text() for element in page.css("#queries p.note")] == [
        places, places, "1 more query not shown", places, places, "1 more query not shown",
    ]  # fmt: skip


def test_answers_come_first_then_documents_then_revisions() -> None:
    assert [element.text().partition(" ")[0] for element in tree(written(pages(tame))).css("main h2")] == [
        "Findings", "Golden", "Notes", "Settings", "Documents", "Revisions", "Growth",
    ]  # fmt: skip


def test_page_shows_revisions_without_trailers_and_merged_subjects() -> None:
    trailers = "Vmrag-Lost: ab\nVmrag-Base: cd\nVmrag-Theirs: ef"
    brought = revision(4, f"Add TLS\n\nNote: it is new.\n\n{trailers}\nSigned-off-by: Ada <ada@example.com>")
    joining = msgspec.structs.replace(
        revision(3, f"Merge x into y\n\n{trailers}"), parents=("a" * 32, brought.revision)
    )
    page = tree(written(report(gained=[joining, brought])))
    said = [[p.text() for p in element.css("p") if "Ada" not in p.text()] for element in page.css(".history li")]
    assert said == [["Merge x into y", "brings Add TLS"], ["Add TLS", "Note: it is new."]]
    assert [p.text() for p in page.css(".end")[1].css("p")] == ["Merge x into y", "brings Add TLS"]
    assert "Vmrag-" not in page.body.text()
    assert "Signed-off" not in page.body.text()


def test_document_with_an_opaque_id_is_shown_by_its_title() -> None:
    name = f"library/{OPAQUE_ID}"
    query = QueryChange("q", 1, "ranking", (), (RankedChunk(name, 2, 1.0), RankedChunk("c/d.md", 0, 0.5)))
    queries = ComparedQueries("f", 1, (query,), titles={name: "Rotation of keys"})
    some = [document(1, ("library", OPAQUE_ID), "a", "b", title="Rotation of keys")]
    page = tree(written(report(some, queries=queries)))
    assert page.css_first("nav .line bdi").text() == "Rotation of keys"
    assert page.css_first(".document h4").text() == f"Rotation of keys {name}"
    assert [element.text() for element in page.css(".hit .name")] == [f"Rotation of keys {name} #2", "c/d.md #0"]


def test_rank_that_rose_after_a_removal_is_the_same_place() -> None:
    before, after = (tuple(RankedChunk(f"c/{letter}", 0, 1.0) for letter in some) for some in ("gxy", "xy"))
    query = QueryChange("q", 1, "ranking", before, after)
    marks = tree(written(report(queries=ComparedQueries("f", 1, (query,))))).css(".mark")
    assert [mark.text() for mark in marks] == ["gone", "=same place", "=same place"]


@pytest.mark.parametrize("change", ["none", "scores"])
def test_page_lists_changed_text_but_folds_changed_scores(change: Any) -> None:
    chunks = tuple(RankedChunk(f"c/{character}", 0, 1.0) for character in "ab")
    one = QueryChange("one", 1, change, chunks, chunks)
    answer_change = AnswerChange("one", 1, 2, AnswerText("c/b", "before"), AnswerText("c/b", "after"), below=True)
    queries = ComparedQueries(
        "f", 5, (one, msgspec.structs.replace(one, query="two", line=2, change="scores")), answers=(answer_change,)
    )
    page = tree(written(report(queries=queries)))
    assert page.css_first(".figure:nth-child(3) dd").text() == "0 of 5"
    listed, folded = page.css("#queries > .queries"), page.css("#queries > details .query h3 bdi")
    assert [element.text() for element in listed[0].css(".mark")] == ["=same place", "≠same place, with another text"]
    assert listed[0].css_first(".misses").text().strip() == "c/b has a different text at place 2."
    assert [passage.text() for passage in folded] == ["two"]


def test_queries_that_are_new_or_removed_are_named_and_not_compared() -> None:
    added = (ListedQuery("why?", 3, ("c/d is not the first.",)),)
    queries = ComparedQueries("f", 2, added=added, removed=(ListedQuery("who?", 4),))
    page = tree(written(report(queries=queries)))
    assert [" ".join(element.text().split()) for element in page.css(".listed > li")] == [
        "New why? line 3 feature: c/d is not the first.",
        "Removed who? line 4",
    ]
    assert page.css_first(".figure:nth-child(3) dd").text() == "0 of 1"


def test_page_counts_hidden_characters_next_to_words() -> None:
    page = tree(written(report([document(1, ("a", "b"), None, "evil \u202e text")])))
    [words] = [element for element in page.css(".figure") if element.css_first("dt").text() == "Words"]
    assert [element.text() for element in words.css("dd")] == [
        "+3 \u22120",
        "inserted and deleted; 1 invisible character",
    ]


def test_inserted_word_is_an_ins_a_deleted_one_a_del() -> None:
    page = written(report([document(1, ("a", "b"), "rotate every 90 days", "rotate every 30 days now")]))
    [text] = tree(page).css(".text")
    assert text.inner_html == "rotate every <del>90</del><ins>30</ins> days<ins> now</ins>"


@pytest.mark.parametrize(
    ("inserted", "deleted", "shown"),
    [(0, 0, "nnnnn"), (1, 0, "pnnnn"), (3, 1, "pppmn"), (900, 100, "ppppm"), (1, 900, "mmmmm")],
)
def test_five_blocks_show_the_share_of_words(inserted: int, deleted: int, shown: str) -> None:
    line = document(1, ("a", "b"), "x " * deleted, "y " * inserted)
    assert html.draw_blocks(line) == shown


def test_page_names_the_command_that_shows_the_same_in_a_terminal() -> None:
    page = written(report(base="main", head="x; rm -rf ~"))
    assert tree(page).css_first("footer code").text() == "vmrag diff 'main...x; rm -rf ~'"


def test_equal_reports_give_equal_pages() -> None:
    assert written(pages(tame)) == written(pages(tame))


def test_missing_jinja2_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    html._create_environment.cache_clear()
    with pytest.raises(IndexExtraMissing) as caught:
        written(report())
    assert caught.value.hint == "run 'pip install \"vmrag-link[report]\"' to install it"
    html._create_environment.cache_clear()
