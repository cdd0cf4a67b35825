"""`.vmrag/queries.yaml`: its content, how it is rejected, and that recording keeps the user's
text.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.long import examples
from vmrag_link import yaml_tree
from vmrag_link.errors import QueriesInvalid
from vmrag_link.golden import file, rewrite
from vmrag_link.golden.queries import GoldenQuery, RankedChunk, Recording, describe_changes, find_misses
from vmrag_link.retrieval.query import Mode

LABEL = ".vmrag/queries.yaml"
NOW = Recording(version=2, mode="hybrid", k=5, vector_weight=0.4, document_weight=0.6, per_document=0)
A, B = RankedChunk("handbook/a.md", 0, 1.0), RankedChunk("handbook/b.md", 3, 0.25)


def read(text: str) -> list[GoldenQuery]:
    return list(file.parse_queries(text.encode(), LABEL).queries)


def refused(text: str | bytes) -> QueriesInvalid:
    with pytest.raises(QueriesInvalid) as caught:
        file.parse_queries(text.encode() if isinstance(text, str) else text, LABEL)
    assert caught.value.hint
    assert caught.value.details["file"] == LABEL
    return caught.value


def test_every_field_is_read():
    [query] = read(
        "queries:\n"
        "  - query: 42\n    collection: [handbook, notes]\n    mode: keyword\n    k: 7\n"
        '    where: {year: {$gte: 2024}, open: true, day: "2024", share: 0.5, word: yes}\n'
        "    where_document: {$contains: TLS}\n"
        "    expect: [handbook/a/b.md, notes/1]\n    first: handbook/a/b.md\n"
        "    ranking:\n      - {document: handbook/a/b.md, chunk: 2, score: 1}\n"
    )
    assert query == GoldenQuery(
        text="42",
        line=2,
        collections=("handbook", "notes"),
        mode=Mode.KEYWORD,
        k=7,
        where={"year": {"$gte": 2024}, "open": True, "day": "2024", "share": 0.5, "word": "yes"},
        where_document={"$contains": "TLS"},
        expect=("handbook/a/b.md", "notes/1"),
        first="handbook/a/b.md",
        ranking=(RankedChunk("handbook/a/b.md", 2, 1.0),),
    )


def test_single_names_need_no_brackets():
    [query] = read("queries: [{query: x, collection: notes, expect: notes/1}]")
    assert (query.collections, query.expect) == (("notes",), ("notes/1",))


QUERY = "queries:\n  - query: x\n"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "the file has no queries"),
        ("# nothing yet\n", 1, "the file has no queries"),
        ("queries:\n", 1, "queries must be a list"),
        ("\nqueries: []\n", 2, "the file has no queries"),
        ("- query: x\n", 1, "the file must be `key: value` lines"),
        ("querys: []\n", 1, "unknown key 'querys' in the file; the nearest is queries"),
        ("queries:\n  - x\n", 2, "a query must be"),
        ("queries:\n  - expect: [a/b]\n", 2, "a query needs a text"),
        ("queries:\n  - query:\n    k: 3\n", 2, "query must be text"),
        (QUERY + "    expct: [a/b]\n", 3, "the nearest is expect"),
        (QUERY + "    k: 0\n", 3, "k must be a whole number from 1 to 1000"),
        (QUERY + "    k: 1001\n", 3, "k must be"),
        (QUERY + "    k: true\n", 3, "k must be"),
        (QUERY + "    k: 99999999999999999999999999\n", 3, "k must be"),
        (QUERY + "    mode: fuzzy\n", 3, "mode must be one of hybrid, vector, keyword; found 'fuzzy'"),
        (QUERY + "    expect: [a.md]\n", 3, "a document name must be COLLECTION/DOC; found 'a.md'"),
        (QUERY + "    expect: []\n", 3, "expect is empty"),
        (QUERY + "    expect: {a: b}\n", 3, "expect must be a list"),
        (QUERY + "    first: [a/b]\n", 3, "a document must be text"),
        (QUERY + "    ranking:\n", 3, "ranking must be a list"),
        (QUERY + "    ranking: [{document: a/b, chunk: 0}]\n", 3, "missing required field `score`"),
        (QUERY + "    ranking: [{document: a/b, chunk: x, score: 1}]\n", 3, "Expected `int`"),
        (QUERY + "    where: 3\n", 3, "where must be a filter"),
        (QUERY + "    where: {year: {$near: 3}}\n", 3, "where: the filter uses the unknown operator $near"),
        (QUERY + "    where_document: {$regex: '('}\n", 3, "where_document: invalid regular expression in the filter"),
        (QUERY + "    collection: notes\n    first: handbook/a\n", 2, "but the query searches only notes"),
        (QUERY + "    query: y\n", 3, "'query' occurs twice"),
        (QUERY + "    k: *a\n", 3, "anchors and aliases"),
        (QUERY + "    k: !!python/object:os.system 3\n", 3, "tags are not allowed"),
        (QUERY + "    <<: {k: 3}\n", 3, "merge keys"),
        (QUERY + "    where: {? [a] : b}\n", 3, "a key must be a word"),
        (QUERY + "\tk: 3\n", 3, "is not YAML"),
        (QUERY + "---\nqueries: []\n", 4, "a second YAML document"),
        (QUERY + "recorded: {version: 2}\n", 3, "`recorded` does not have vmrag's format"),
        (f"queries:\n  - query: {'x' * 4001}\n", 2, "query has 4,001 characters, more than 4,000"),
        ("queries:\n" + "- {query: x}\n" * 5001, 5002, "the file has 5,001 queries, more than 5,000"),
        (QUERY + f"    where: {'[' * 200}{']' * 200}\n", 3, "is nested deeper than 100 levels"),
        (QUERY + f"    where: {'[' * 2000}\n", 3, "is nested deeper than 100 levels"),
    ],
)
def test_malformed_file_is_refused_with_line_and_reason(text, line, reason):
    error = refused(text)
    assert error.message.startswith(f"{LABEL}, line {line}: ")
    assert reason in error.message
    assert error.details["line"] == line


@pytest.mark.parametrize("data", [b"queries: \xff", b"queries: \x1b[31m", b"x" * (file.MAX_BYTES + 1)])
def test_queries_file_rejects_invalid_text(data):
    refused(data)


def test_number_of_values_is_limited(monkeypatch):
    monkeypatch.setattr(yaml_tree, "MAX_NODES", 1000)
    assert "line 3: the file has more than 1,000 values" in refused("queries:\n  [a,\n  " + "a," * 1000 + "]").message


def test_within_needs_an_order():
    assert "`within`" in refused(QUERY + "    within: 1\n").message
    [query] = read(QUERY + "    within: 2\n    order: [handbook/a.md]\n")
    assert (query.order, query.within) == (("handbook/a.md",), 2)


def test_order_is_recorded_in_place_without_ranking_comments():
    text = "queries:\n  - query: q   # mine\n    order: [handbook/b.md]\n  - {query: r}\n"
    answers = rewrite.RecordedAnswers({}, {0: ("handbook/a.md", "handbook/b.md"), 1: ("handbook/c d.md",)})
    assert rewrite.record_answers(text.encode(), answers, NOW, LABEL).decode() == (
        "queries:\n  - query: q   # mine\n    order:\n      - handbook/a.md\n      - handbook/b.md\n"
        '  - {query: r, order: ["handbook/c d.md"]}\n'
    )


def test_unknown_field_error_lists_the_known_ones():
    assert refused(QUERY + "    zzz: 1\n").hint.startswith("use one of these keys: query, collection, mode, k,")


# -- what an answer lacks --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "answers", "kinds"),
    [
        ({"expect": ("handbook/b.md",)}, (A, B), []),
        ({"expect": ("handbook/b.md", "handbook/c.md", "handbook/d.md")}, (A, B), ["expect", "expect"]),
        ({"first": "handbook/a.md"}, (A, B), []),
        ({"first": "handbook/b.md"}, (A, B), ["first"]),
        ({"first": "handbook/b.md"}, (), ["first"]),
        ({"ranking": (A, B)}, (A, B), []),
        ({"ranking": (A, B)}, (B, A), ["ranking"]),
        ({"ranking": (A,)}, (A, B), ["ranking"]),
        ({"ranking": (RankedChunk("handbook/a.md", 0, 0.999999),)}, (A,), ["ranking"]),
        ({"ranking": ()}, (), []),
        ({"ranking": ()}, (A,), ["ranking"]),
    ],
)
def test_find_misses_lists_each_kind_of_miss(query, answers, kinds):
    golden = GoldenQuery("x", 1, **query)
    assert [miss.kind for miss in find_misses(golden, answers, 5, comparable=True)] == kinds
    assert [miss.kind for miss in find_misses(golden, answers, 5, comparable=False)] == [
        k for k in kinds if k != "ranking"
    ]


@pytest.mark.parametrize(
    ("within", "answers", "message"),
    [
        (0, "ab", ""),
        (0, "aabbc", ""),
        (0, "acb", "handbook/b.md comes at number 3, and not at number 2"),
        (0, "ba", "handbook/a.md comes at number 2, and not at number 1"),
        (1, "ba", ""),
        (1, "acb", ""),
        (1, "acdb", "handbook/b.md comes at number 4, and not within 1 of number 2"),
        (9, "a", "handbook/b.md is no longer found"),
    ],
)
def test_order_holds_within_a_number_of_ranks(within, answers, message):
    query = GoldenQuery(text="q", line=1, order=("handbook/a.md", "handbook/b.md"), within=within)
    answer = [RankedChunk(f"handbook/{name}.md", number, 0.1) for number, name in enumerate(answers)]
    missed = find_misses(query, answer, 9, comparable=True)
    assert [finding.message for finding in missed] == ([message] if message else [])
    assert all(miss.expected and miss.got for miss in missed)


def test_rising_document_is_out_of_order_like_a_falling_one():
    query = GoldenQuery(text="q", line=1, order=("handbook/a.md", "handbook/b.md", "handbook/c.md"), within=1)
    answer = [RankedChunk(f"handbook/{name}.md", number, 0.1) for number, name in enumerate("cab")]
    [missed] = find_misses(query, answer, 9, comparable=True)
    assert missed.message == "handbook/c.md comes at number 1, and not within 1 of number 3"


def test_describe_changes_lists_changed_ranking_settings():
    before = Recording(version=1, mode="hybrid", k=3, vector_weight=0.4, document_weight=0.6, per_document=0)
    assert describe_changes(before, NOW) == ["the ranking's version was 1 and is 2", "retrieval.k was 3 and is 5"]
    assert describe_changes(NOW, NOW) == []


# -- recording -------------------------------------------------------------------------------------


def lines_removed(before: str, after: str) -> list[str]:
    lines_after = after.splitlines()
    return [line for line in before.splitlines() if line not in lines_after]


def record(text: str, **rankings: tuple[RankedChunk, ...]) -> str:
    by_number = {int(number.removeprefix("q")): ranking for number, ranking in rankings.items()}
    return rewrite.record_answers(text.encode(), rewrite.RecordedAnswers(by_number), NOW, LABEL).decode()


RECORDED = "recorded: {version: 2, mode: hybrid, k: 5, vector_weight: 0.4, document_weight: 0.6, per_document: 0}\n"


def test_ranking_is_added_and_everything_else_stays():
    before = "# ours\n\nqueries:\n  - query: x   # why\n\n  # about y\n  -   query: y\n      k: 1\n"
    assert record(before, q0=(A,), q1=()) == (
        f"# ours\n\n{RECORDED}queries:\n  - query: x   # why\n"
        "    ranking:\n      - {document: handbook/a.md, chunk: 0, score: 1.0}\n"
        "\n  # about y\n  -   query: y\n      k: 1\n      ranking: []\n"
    )


def test_recorded_ranking_is_replaced_in_place():
    before = (
        f"{RECORDED.replace('version: 2', 'version: 1')}queries:\n- query: x\n  ranking:\n"
        "    - {document: handbook/a.md, chunk: 0, score: 0.5}   # the old one\n  expect: handbook/b.md # stays\n"
    )
    assert record(before, q0=(A, B)) == (
        f"{RECORDED}queries:\n- query: x\n  ranking:\n"
        "    - {document: handbook/a.md, chunk: 0, score: 1.0}\n"
        "    - {document: handbook/b.md, chunk: 3, score: 0.25}   # the old one\n  expect: handbook/b.md # stays\n"
    )


def test_braces_byte_order_marks_line_ends_and_missing_newlines_are_kept():
    assert record('{"queries": [{"query": "x",}]}', q0=(A,)).endswith(
        '"queries": [{"query": "x", ranking: [{document: handbook/a.md, chunk: 0, score: 1.0}],}]}'
    )
    marked = record("\ufeffqueries:\r\n- query: |\r\n    x\r\n\r\n- query: y", q0=(A,), q1=(B,))
    assert marked.startswith("\ufeffrecorded: ")
    assert "\n" not in marked.replace("\r\n", "")
    assert [passage.text for passage in read(marked)] == ["x\n", "y"]


NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
CHUNKS = st.builds(
    lambda name, chunk, score: RankedChunk(f"notes/{name}", chunk, score),
    NAMES,
    st.integers(0, 10**6),
    st.floats(-2, 100, allow_nan=False).map(lambda score: round(score, 9)),
)
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
LAYOUTS = (
    "  - query: {text}\n",
    "  # a comment\n  - query: {text}   # and one behind\n    k: 3\n\n",
    "  - {{query: {text}, mode: keyword}}  # in braces\n",
    "  -\n    expect:\n      - notes/a\n      - notes/b # last\n    query: {text}\n",
    "  - query: >-\n      several lines\n      of words\n\n    where: {{a: [1, 2]}}\n",
    "  - ranking: []\n    query: {text}\n",
    "  - query: {text}\n    ranking:\n      - {{document: notes/x, chunk: 0,\n         score: 1}}\n    k: 3\n",
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def comments(text: str) -> list[str]:
    """Return the comments of `LAYOUTS`; the names of recorded chunks may also contain a `#`."""
    return re.findall("# (?:a comment|and one behind|in braces|last)", text)


@settings(max_examples=examples(180), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(LAYOUTS), TEXTS, st.none() | st.lists(CHUNKS, max_size=3)), min_size=1, max_size=5
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_recorded_answers_are_read_again_and_comments_stay(parts, newline):
    before = "queries:\n" + "".join(layout.format(text=quoted(text)) for layout, text, _ in parts)
    try:
        read(before)
    except QueriesInvalid:
        return  # characters that YAML has no place for
    before = before.replace("\n", newline)
    rankings = {number: tuple(ranking) for number, (*_, ranking) in enumerate(parts) if ranking is not None}
    after = rewrite.record_answers(before.encode(), rewrite.RecordedAnswers(rankings), NOW, LABEL)
    queries = file.parse_queries(after, LABEL)
    assert queries.recorded == (NOW if rankings else None)
    assert [query.ranking for query in queries.queries] == [
        rankings.get(number, query.ranking) for number, query in enumerate(read(before))
    ]
    assert comments(after.decode()) == comments(before)
    assert rewrite.record_answers(after, rewrite.RecordedAnswers(rankings), NOW, LABEL) == after
