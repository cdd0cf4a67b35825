"""Prefixes that users type to narrow a query, and the paths and symbols that they match."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_code_symbols import SAMPLES
from vmrag_link.code.cutting import cut_code
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import encode_canonical_json
from vmrag_link.retrieval.narrowing import (
    MAX_VALUES,
    Narrowing,
    combine_narrowings,
    compile_path,
    compile_symbol,
    make_narrowing,
    normalize_symbol,
    parse_query,
)
from vmrag_link.retrieval.narrowing_filter import SymbolFilter
from vmrag_link.retrieval.narrowing_values import KINDS, LANGUAGES

PREFIX = re.compile(r"(?:^|\s)(?:path|lang|symbol|kind):\S")

# -- in the text of a query


@given(st.text().filter(lambda text: not PREFIX.search(text)))
def test_text_without_prefixes_is_words(text):
    assert parse_query(text) == (text, None)


WORDS = st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), max_size=4)


@given(WORDS, WORDS, st.from_regex(r"[a-z/.*]{1,10}[a-z]", fullmatch=True).filter(lambda path: path[:2] != "./"))
def test_prefix_is_extracted_at_any_position(before, after, path):
    text, narrowing = parse_query(" ".join([*before, f"path:{path}", *after]))
    assert narrowing == Narrowing(paths=(path,))
    assert text.split() == ([*before, *after] or re.findall(r"\w+", path))


@given(st.text(alphabet="ab :/\n", min_size=1).filter(str.strip), st.sampled_from(["path", "symbol"]))
def test_value_in_quotes_may_have_spaces_and_colons(value, field):
    text, narrowing = parse_query(f'how {field}:"x{value}"')
    assert text == "how"
    assert narrowing == (
        make_narrowing(paths=[f"x{value}"]) if field == "path" else make_narrowing(symbols=[f"x{value}"])
    )


@pytest.mark.parametrize(
    "text",
    [
        'what does "path:src" do',
        'say "kind:nothing of the sort lang:none" twice',
        "http://example.com/path:x",
        "std::vector and foo:bar",
        "path::Path or kind::ErrorKind",
        "xpath:a",
        "PATH:/usr/bin",
        "what does path: mean",
        'path:"unclosed quote',
        'path:""',
        "-path:src",
    ],
)
def test_text_without_known_prefix_is_only_words(text):
    assert parse_query(text) == (text, None)


def test_all_prefixes_at_once():
    text, narrowing = parse_query(
        'path:src/auth how  does lang:py symbol:Session path:"my folder" it kind:code kind:class expire'
    )
    assert text == "how  does it expire"
    assert narrowing == Narrowing(("src/auth", "my folder"), ("python",), ("Session",), ("code", "class"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("symbol:Session::refresh path:src/auth", "Session.refresh src auth"),
        ("symbol:*Error.Kind?", "Error.Kind"),
        ("path:*.py lang:py", "py"),
        ("lang:ts kind:class", "class typescript"),
    ],
)
def test_values_are_ranked_without_words(text, words):
    assert parse_query(text)[0] == words


def test_values_of_options_and_prefixes_are_joined():
    one, other = make_narrowing(paths=["a"], kinds=["code"]), make_narrowing(paths=["b", "a"])
    assert combine_narrowings(None, one, None, other) == Narrowing(paths=("a", "b"), kinds=("code",))
    assert combine_narrowings(None, None) is None


# -- values


@pytest.mark.parametrize(
    ("given_name", "language"),
    {
        "py": "python",
        "Python": "python",
        ".py": "python",
        "js": "javascript",
        "jsx": "javascript",
        "ts": "typescript",
        "c++": "cpp",
        "C#": "c_sharp",
        "csharp": "c_sharp",
        "golang": "go",
        "rs": "rust",
        "sh": "bash",
        "shell": "bash",
        "objective-c": "objective_c",
        "md": "markdown",
        "ipynb": "notebook",
        "dockerfile": "dockerfile",
    }.items(),
)
def test_languages_have_other_names(given_name, language):
    assert make_narrowing(languages=[given_name, language]) == Narrowing(languages=(language,))
    assert language in LANGUAGES


def test_unknown_language_or_kind_is_rejected_with_the_valid_ones():
    with pytest.raises(UsageInvalid, match=r"unknown language 'pyhton'\. Did you mean 'python'\?") as language:
        make_narrowing(languages=["pyhton"])
    assert all(name in language.value.hint for name in ("use one of: ", "python", "markdown"))
    with pytest.raises(UsageInvalid, match=r"unknown kind 'clas'\. Did you mean 'class'\?") as kind:
        make_narrowing(kinds=["clas"])
    assert "code, document, " in kind.value.hint
    with pytest.raises(UsageInvalid) as typed:
        parse_query("error kind:nonsense")
    assert typed.value.hint.endswith(", or write it in quotes to search for the words")


@pytest.mark.parametrize("field", ["paths", "languages", "symbols", "kinds"])
@pytest.mark.parametrize("value", ["", " ", "x" * 1001, "python\udcff"])
def test_empty_and_endless_values_are_rejected(field, value):
    with pytest.raises(UsageInvalid):
        make_narrowing(**{field: [value]})
    assert make_narrowing(**{field: []}) is None


def test_query_takes_so_many_values_of_a_field():
    many = [f"src/{number}*" for number in range(MAX_VALUES)]
    assert make_narrowing(paths=many * 2).paths == tuple(many)
    with pytest.raises(UsageInvalid, match="201 values of 'path', but the maximum is 200"):
        make_narrowing(paths=[*many, "lib"])


def test_kinds_of_all_grammars_are_known():
    kinds = {piece.kind for name, (text, _) in SAMPLES.items() for piece in cut_code(text, name.split()[0], 1)}
    assert kinds - {""} <= set(KINDS)
    more = {"kotlin": "annotation class Inject\n" * 9, "swift": "actor Bank {\n  var a = 1\n}\n" * 9}
    assert {piece.kind for name, text in more.items() for piece in cut_code(text, name, 20)} - {""} <= set(KINDS)


# -- paths


@pytest.mark.parametrize(
    ("pattern", "meant", "others"),
    [
        ("src/auth", ["src/auth/a.py", "lib/src/auth", "src/authority.py"], ["src/a/auth", "Src/auth/a.py"]),
        ("/src", ["src/a.py", "/src/a.py"], ["lib/src/a.py"]),
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "a.py/b"]),
        ("/*.py", ["a.py"], ["x/a.py"]),
        ("src/**/test_*.py", ["src/test_a.py", "x/src/a/b/test_.py"], ["src/a/tests.py", "xsrc/test_a.py"]),
        ("docs/*", ["docs/a.md", "x/docs/a.md"], ["docs/a/b.md"]),
        ("docs/**", ["docs/a.md", "docs/a/b.md"], ["docs", "xdocs/a"]),
        ("test*/", ["tests/a.py", "x/test/b/c.py"], ["test.py", "atest/b"]),
        ("?.py", ["a.py", "x/a.py"], ["ab.py", ".py"]),
        ("[id].tsx", ["app/[id].tsx"], ["app/i.tsx"]),
        ("a+b.*", ["a+b.py"], ["aab.py"]),
        ("**", ["a", "a/b"], []),
    ],
)
def test_path_is_a_part_or_a_glob(pattern, meant, others):
    passes = compile_path(pattern)
    assert [path for path in (*meant, *others) if passes(path)] == meant


def test_patterns_are_matched_in_linear_time():
    begun = time.process_time()
    assert not compile_path("*a" * 50 + "b")("a" * 250)
    assert not compile_path("**/a*/" * 20 + "b")("aa/" * 80)
    assert not compile_symbol("*a" * 50 + "b", within=True).search("a" * 200)
    assert time.process_time() - begun < 2


# -- symbols


@pytest.mark.parametrize(
    ("name", "within", "ending"),
    [
        ("Session", ["Session", "auth.Session", "Session.refresh"], ["Session", "auth.Session"]),
        (
            "session",
            ["Session", "auth.Session", "Session.refresh", "a.session"],
            ["Session", "auth.Session", "a.session"],
        ),
        ("Session.refresh", ["Session.refresh"], ["Session.refresh"]),
        ("Sess*", ["Session", "auth.Session", "Session.refresh", "Sessions"], ["Session", "auth.Session", "Sessions"]),
        ("*.refresh", ["Session.refresh"], ["Session.refresh"]),
        ("a.session", ["a.session"], ["a.session"]),
    ],
)
def test_symbol_pattern_matches_a_name_or_its_members(name, within, ending):
    symbols = ["Session", "auth.Session", "Session.refresh", "a.session", "Sessions", "mysession"]
    assert [symbol for symbol in symbols if compile_symbol(name, within=True).search(symbol)] == within
    assert [symbol for symbol in symbols if compile_symbol(name, within=False).search(symbol)] == ending


@pytest.mark.parametrize(
    "name", ["Session.refresh", "Session::refresh", "Session#refresh", "Session->refresh", r"Session\refresh"]
)
def test_languages_write_the_same_symbol_in_their_ways(name):
    assert normalize_symbol(name) == "Session.refresh"
    assert make_narrowing(symbols=[f"{name}()"]) == Narrowing(symbols=("Session.refresh",))


def test_question_mark_is_part_of_a_symbol():
    assert compile_symbol("valid?", within=True).search("User.valid?")
    assert not compile_symbol("valid?", within=True).search("User.valids")


SYMBOLS = st.lists(
    st.from_regex(r"[~#@]?[A-Za-z_]\w{0,3}[?!]?|operator[=<>+-]{1,2}", fullmatch=True), min_size=1, max_size=3
).flatmap(lambda parts: st.sampled_from([".", "::", "#", "->", "\\"]).map(lambda separator: separator.join(parts)))


@given(SYMBOLS, SYMBOLS, st.data())
def test_documents_with_a_matching_symbol_are_not_skipped(symbol, other, data):
    """Metadata is looked through as text before it is decoded."""
    pieces = [[0, 1, other, "class", 'a "signature"', [[other, "class", 1, 9], [symbol, "method", 2, 3]]]]
    metadata = encode_canonical_json({"language": "python", "vmrag:pieces": pieces})
    parts = normalize_symbol(symbol).split(".")
    name = ".".join(parts[data.draw(st.integers(0, len(parts) - 1)) :])
    name = data.draw(st.sampled_from([name, name.lower(), f"{name[:1]}*", f"*{name[-1:]}", other]))
    for expected in (
        (SymbolFilter(name, within=True), SymbolFilter(name, within=False)) if normalize_symbol(name) else ()
    ):
        meant = [candidate for candidate in (symbol, other) if expected.accepts_symbol(candidate)]
        assert expected.may_be_in_metadata(metadata) or not meant


def test_document_without_the_symbol_is_passed_over():
    pieces = [[0, 1, "Widget", "class", "class Widget(get)", [["Widget.target", "method", 2, 3]]]]
    metadata = encode_canonical_json({"language": "python", "vmrag:pieces": pieces})
    assert [name for name in ("widget", "Target", "target", "get", "*get") if found_in(name, metadata)] == [
        "widget",
        "target",
        "*get",
    ]


def found_in(name: str, metadata: str) -> bool:
    return SymbolFilter(name, within=False).may_be_in_metadata(metadata)
