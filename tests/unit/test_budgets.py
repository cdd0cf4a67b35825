"""The counts of plain English and of names that may only fall."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests import budgets, english, size
from tests.budgets import Place

ROOT = Path(__file__).parents[2]


def count_constructions(kind: str, text: str) -> set[str]:
    return {name for name, pattern in english.select_patterns(kind).items() if pattern.search(text)}


@pytest.mark.parametrize(
    ("kind", "before", "construction", "after"),
    [
        (
            "page",
            "What a manager has written over is said by `x`.",
            "clause as subject",
            "If another manager overwrites a hook, `x` warns.",
        ),
        ("page", "| name |\n| What is skipped |", "clause as subject", "| name |\n| Skipped files |"),
        ("page", "Of `x` no pattern is read.", "genitive first", "vmrag ignores patterns in `x`."),
        ("message", "`x` says which revision it is", "say", "`x` prints the revision"),
        ("comment", "the remote is asked first", "agentless passive", "vmrag asks the remote first"),
        ("page", "Nobody's push replaces another's.", "nobody", "Concurrent pushes are merged."),
        ("message", "'x' is no commit", "is no", "'x' is not a commit, and there is no tag of that name"),
        ("page", "hooks that are there are kept", "is there", "existing hooks are kept, and are there any?"),
        ("page", "Keys stand in no file.", "stands", "The letter stands for a key."),
        ("docstring", "It is made anew.", "old word", "It is built again."),
        ("comment", "a ref of git's", "double genitive", "a git ref"),
        ("docstring", "Raises as `x`.", "Raises as", "Raises `NoPin` if the commit has no pin."),
        ("docstring", "As `x` has it.", "As `x`", "Return the revision, as an opaque text."),
        ("name", "test_what_is_no_author_is_refused", "riddle", "test_commit_rejects_invalid_author"),
        ("name", "test_stale_documents_are_said", "riddle", "test_status_lists_stale_documents"),
        ("name", "test_a_b_c_d_e_f_g_h_i_j_k_l", "long name", "test_a_b_c_d_e_f_g_h_i_j_k"),
    ],
)
def test_english_counts_construction_and_accepts_rewrite(kind: str, before: str, construction: str, after: str) -> None:
    assert construction in count_constructions(kind, before)
    assert count_constructions(kind, after) == set()


def test_english_reads_every_kind_of_text() -> None:
    source = (
        '"""Page."""\n# Note.\ndef test_name() -> None:\n    """Doc."""\n    raise Error(f"Two {words} here", "one")\n'
    )
    texts = list(english.read_python(source, strings=True))
    assert sorted(texts) == [
        ("comment", 2, "Note."),
        ("docstring", 1, "Page."),
        ("docstring", 4, "Doc."),
        ("message", 5, "Two `x` here"),
        ("name", 3, "test_name"),
    ]


def test_english_skips_code_of_pages_and_keeps_line_numbers() -> None:
    page = "# Title\n\n```sh\nnobody\n```\n\n`nobody` runs.\nNobody reads.\n"
    [match] = english.CONSTRUCTIONS["nobody"].finditer(text := english.blank_code(page))
    assert text.count("\n", 0, match.start()) + 1 == 8


@pytest.mark.parametrize(
    ("subject", "accepted"),
    [
        ("tests: start runner processes from one helper", True),
        ("mcp, cli: refuse names above 4 kB", True),
        ("What a runner starts is started in one place", False),
        ("tests: start one helper; report ended sessions", False),
        ("tests: " + "x" * 66, False),
        ("Tests: start one helper.", False),
    ],
)
def test_subject_has_area_and_summary(subject: str, accepted: bool) -> None:
    assert english.is_subject(subject) is accepted


def test_size_lists_vague_bindings() -> None:
    source = """
def find(known, own_name):
    for each in known:
        found = [there for there in each]
    try: pass
    except E as left: pass
    match known:
        case [told, *living]: pass
    print(done.asked)
"""
    names = {name for _, name in size.list_bindings(ast.parse(source))} & size.VAGUE
    assert names == {"known", "each", "found", "there", "left", "told", "living"}


def test_size_lists_functions_except_protocol_methods_values_and_commands() -> None:
    source = """
class Engine(Protocol):
    def rows(self): ...
class Store:
    def rows(self): ...
    def look(self): ...
    def __len__(self): ...
    @property
    def head(self): ...
@click.command()
def status(): ...
def _says(): ...
def rows(): ...
def read_pin(): ...
"""
    tree = ast.parse(source)
    exempt = set(size.list_protocol_methods(tree))
    assert [name for _, name in size.list_functions(tree, exempt=exempt)] == ["_says", "rows", "read_pin", "look"]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "budgets.json"
    path.write_text(json.dumps({"english": {"docs": {"say": 2, "nobody": 1}}}))
    monkeypatch.setattr(budgets, "BUDGETS", path)
    monkeypatch.setattr(budgets, "list_added_lines", set)
    return path


def make_places(*kinds: str) -> list[Place]:
    return [Place("docs", kind, "docs/a.md", number, "text") for number, kind in enumerate(kinds, 1)]


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [(["say", "say", "nobody"], True), (["say"], True), (["say"] * 3, False), (["stands"], False)],
)
def test_budgets_refuse_a_higher_count(stored: Path, kinds: list[str], kept: bool) -> None:
    assert budgets.check_budgets("english", make_places(*kinds), write=False) is kept
    assert json.loads(stored.read_text()) == {"english": {"docs": {"say": 2, "nobody": 1}}}


def test_budgets_store_only_lower_counts(stored: Path) -> None:
    assert not budgets.check_budgets("english", make_places("say", "nobody", "nobody", "stands"), write=True)
    assert json.loads(stored.read_text()) == {"english": {"docs": {"say": 1, "nobody": 1}}}


def test_budgets_name_added_lines_first(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "list_added_lines", lambda: {("docs/a.md", 2)})
    assert [place.line for place in budgets.prefer_added(make_places("say", "say"))] == [2]
    assert [place.line for place in budgets.prefer_added(make_places("say"))] == [1]
