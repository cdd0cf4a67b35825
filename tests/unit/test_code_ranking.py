"""Ranking of code besides words and vectors, on pieces made by hand."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.index import keywords
from vmrag_link.models import IndexedPiece
from vmrag_link.retrieval import code_ranking
from vmrag_link.retrieval.code_ranking import CodeQuestion, RankedPiece


def piece(path: str, symbol: str = "", *declared: str, number: int = 0) -> RankedPiece:
    rows = tuple((symbol, "function", 1, 1) for symbol in declared)
    return RankedPiece(path, number, IndexedPiece(0, 1, symbol, "function", "", rows))


def no_texts(rows):
    return dict.fromkeys(rows, "")


def ranked(question: str, *pieces: RankedPiece, scores: tuple[int, ...] = (), highest: int = 0, texts=None, **kwargs):
    """The numbers of the pieces, the best first; all have the same score unless some are given."""
    given_scores = dict(enumerate(scores or (1000,) * len(pieces)))
    code_question = CodeQuestion(question, **kwargs)
    texts_of = (lambda rows: {row: texts[row] for row in rows}) if texts else no_texts
    result = code_ranking.rank_pieces(given_scores, code_question, pieces.__getitem__, texts_of, highest)
    return sorted(result, key=lambda row: (-result[row], row)), result


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("HandlerStack", "Handler Stack"),
        ("getHTTPResponse(x)", "get HTTP Response"),
        ("XMLParser", "XML Parser"),
        ("foo_barBaz", "bar Baz"),
        ("utf8 snake_case lower UPPER Title", ""),
        ("a.newThing newThing", "new Thing new Thing"),
        ("x" * 50 + "Y" * 60, ""),
    ],
)
def test_parts_are_those_of_identifiers_that_are_written_as_one_word(text, parts):
    assert keywords.split_identifiers(text) == parts


@given(st.text())
def test_any_text_contains_its_parts(text):
    assert all(part in text for part in keywords.split_identifiers(text).split())


def test_piece_is_found_by_place_symbol_and_declarations():
    declared = piece("", "Session.loadAll", "Session.loadAll", "Session.loadAll.tryIt").piece
    parts, named = keywords.list_extra_words("a/b/src/auth/SessionStore.test.ts", declared, "newThing")
    assert named == "loadAll tryIt load All try It", "each name is there once, with its parts"
    assert parts == "new Thing b src auth SessionStore Session Session Store"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Session.refresh", ([("Session", "refresh")], True)),
        ("class Mount", ([("Mount",)], True)),
        ("parse_args()", ([("parse_args",)], True)),
        ("std::vector::push_back", ([("std", "vector", "push_back")], True)),
        ("redirect", ([("redirect",)], True)),
        ("how does HandlerStack call `next_handler`?", ([("HandlerStack",), ("next_handler",)], False)),
        ("how are sessions refreshed", ([], False)),
        ("class of errors", ([], False)),
        ("", ([], False)),
    ],
)
def test_names_are_found_in_questions(text, names):
    question = CodeQuestion(text)
    assert (question.names, question.is_name) == names


def test_definition_goes_before_its_uses_and_before_all_other_collections():
    uses, defines = piece("b.py", "run"), piece("a.py", "Mount", "Mount", "Mount.match")
    order, ranking = ranked("class Mount", uses, defines, scores=(1000, 10), highest=5000)
    assert order == [1, 0]
    assert ranking[1] == 5001
    assert ranked("Mount.match", uses, defines, scores=(1000, 10))[0] == [1, 0]


def test_outermost_definition_of_the_same_case_ranks_first():
    assert ranked("run", piece("a.py", "", "Job.run"), piece("b.py", "", "run"))[0] == [1, 0]
    assert ranked("mount", piece("a.py", "", "X.Mount"), piece("b.py", "", "mount"))[0] == [1, 0], "case counts"


def test_best_piece_keeps_its_score_without_a_definition():
    order, ranking = ranked("Mount", piece("a.py"), piece("b.py"), scores=(700, 600), highest=5000)
    assert (order, ranking[0]) == ([0, 1], 700)


def test_names_of_files_and_symbols_count():
    assert ranked("how are sessions stored", piece("x.py"), piece("session_store.py"))[0] == [1, 0]
    assert ranked("store the session", piece("x.py", "run"), piece("x.py", "storeSession", number=1))[0] == [1, 0]


@pytest.mark.parametrize(
    ("aside", "question"),
    [
        ("tests/test_auth.py", "tests of auth"),
        ("src/auth.spec.ts", "auth specs"),
        ("src/AuthTest.java", "auth test"),
        ("examples/auth.py", "an example of auth"),
        ("src/_compat/auth.py", "auth compatibility"),
        ("vendor/auth.go", "vendored auth"),
        ("auth.d.ts", "stubs of auth"),
        ("src/__fixtures__/auth.py", "fixtures of auth"),
        ("src/auth.bundle.js", "generated auth"),
        ("src/zz_generated.auth.go", "generated auth"),
        ("src/auth.g.dart", "generated auth"),
    ],
)
def test_tests_and_examples_rank_lower_unless_requested(aside, question):
    usual = piece("src/auth.py")
    assert ranked("auth", piece(aside), usual)[0] == [1, 0]
    assert CodeQuestion(question).compute_path_factor(aside) == code_ranking.FULL_FACTOR
    assert CodeQuestion("auth", of_paths=True).compute_path_factor(aside) == code_ranking.FULL_FACTOR


MINIFIED = "function(e,t){return e.auth(t)};" * 30
NUMBERS_OF_TABLE = "auth = [" + ", ".join(str(number * 37 % 4096) for number in range(200)) + "]"
PROSE = "def check(self, user):\n    return user.is_known and self.session.auth(user)\n" * 8


@pytest.mark.parametrize(
    ("text", "aside"),
    [
        (MINIFIED, True),
        (NUMBERS_OF_TABLE, True),
        ("auth = '" + "QUJD" * 200 + "'", True),
        (PROSE, False),
        ("auth 12 34", False),
    ],
)
def test_data_ranks_below_code_unless_question_names_its_symbol(text, aside):
    data, code = piece("a.py", "table_1", "table_1"), piece("b.py", "check", "check")
    assert ranked("auth", data, code, texts=[text, PROSE])[0] == ([1, 0] if aside else [0, 1])
    assert ranked("table_1", data, code, texts=[text, PROSE])[0] == [0, 1]
    assert ranked("auth", data, code, texts=[text, PROSE], of_paths=True)[0] == [0, 1]


@pytest.mark.parametrize(
    "head", ["// Code generated by protoc. DO NOT EDIT.\n", "# @generated by a tool\n", "/* auto-generated */"]
)
def test_all_pieces_of_generated_file_rank_below_written_code(head):
    pieces = [piece("a.py"), piece("a.py", number=1), piece("b.py")]
    assert ranked("auth", *pieces, texts=[head, "auth", "auth"], scores=(10, 900, 600))[0] == [2, 1, 0]


def test_question_for_kind_of_symbol_prefers_that_kind():
    def of_kind(path: str, kind: str) -> RankedPiece:
        return RankedPiece(path, 0, IndexedPiece(0, 1, "Semaphore", kind, "", (("Semaphore", kind, 1, 1),)))

    function, class_ = of_kind("a.py", "function"), of_kind("b.py", "class")
    assert ranked("class Semaphore", function, class_)[0] == [1, 0]
    assert ranked("def Semaphore", class_, function)[0] == [1, 0]
    assert ranked("Semaphore", function, class_)[0] == [0, 1]


@pytest.mark.parametrize(
    ("question", "term"),
    [("the time zone of a user", ["timezon"]), ("log in", ["login"]), ("a file name", ["filenam"])],
)
def test_two_words_are_also_found_as_one(question, term):
    assert term in CodeQuestion(question).list_joined_terms(question)
    assert term not in CodeQuestion(question).list_terms(question)
    assert CodeQuestion(question).list_joined_terms("a " * 100) == []


def test_code_that_contains_the_question_ranks_first():
    texts = ["raise Busy(f'{name} is held by another process')", "another process, held by: the name is"]
    said = "merge.lock is held by another process"
    assert ranked(said, piece("a.py"), piece("b.py"), scores=(600, 1000), texts=texts)[0] == [0, 1]
    question = CodeQuestion(said)
    assert question.score_phrase(texts[0]) == 2000 * 5 // 7
    assert question.score_phrase("a process is held BY another\nprocess") == 2000 * 5 // 7
    assert question.score_phrase("it is held by another one") == 0, "four words are chance"
    assert question.score_phrase(said) == 2000
    assert not CodeQuestion("is held by another").may_be_phrase
    assert CodeQuestion("a " * 100_000).score_phrase("a " * 1000) == 2000


def test_further_pieces_of_a_file_are_lower():
    same = [piece("a.py", number=number) for number in range(3)]
    order, ranking = ranked("nothing", *same, piece("b.py"), scores=(1000, 990, 980, 900))
    assert order == [0, 3, 1, 2]
    assert ranking[0] == 1000
    assert all(ranking[first] > ranking[second] for first, second in itertools.pairwise(order))


SOME = st.lists(st.sampled_from("Session session sessions sess Handler handle run ranOver a b".split()), min_size=1)


@given(SOME, SOME, SOME, st.booleans())
def test_question_is_compared_with_names_as_if_with_each_of_them(words, symbol, others, is_name):
    question = CodeQuestion(".".join(words) if is_name else " ".join([*words, f"{'.'.join(words[:2])}.x"]))
    lower = [text.lower() for text in symbol]
    last = [(name, symbol[-len(name) :]) for name in map(list, question.names)]
    exact = any(name == ends for name, ends in last)
    alike = question.is_name and any([*map(str.lower, name)] == [*map(str.lower, ends)] for name, ends in last)
    share = code_ranking.DECLARED if question.is_name else code_ranking.MENTIONED
    share = share if exact else share // 2 if alike else 0
    expected = share * code_ranking.OUTERMOST // code_ranking.FULL_FACTOR if len(symbol) == 1 else share
    assert question.score_declaration(piece("a.py", "", ".".join(symbol))) == expected

    def begins(one: str, other: str) -> bool:
        return one == other or (min(len(one), len(other)) >= 5 and (one.startswith(other) or other.startswith(one)))

    names_of_piece = [*lower, *map(str.lower, others)]
    alike_words = [word for word in question.words if any(begins(word, name) for name in names_of_piece)]
    assert question.count_shared_words(names_of_piece) == len(alike_words)


@pytest.mark.parametrize(
    "text",
    [
        "A" * 300_000 + " b",
        "a_" * 200_000,
        "aB." * 200_000 + " b",
        " ".join(f"one{number} Type{number}.get" for number in range(20_000)),
    ],
    ids=["capitals", "parts", "joints", "names"],
)
@pytest.mark.sample(1)
def test_question_of_any_kind_is_ranked_quickly(text):
    begun = time.process_time()
    many = [piece(f"f{number}.py", "Type.put", *["get"] * 200, number=number) for number in range(100)]
    ranked(text, *many)
    CodeQuestion(text).list_joined_terms(text)
    assert time.process_time() - begun < 20


def test_scores_are_whole_and_do_not_depend_on_rows():
    pieces = [piece(f"{name}.py", name, name) for name in "abcd"]
    scores = {0: 400, 1: 400, 2: -3, 3: 0}
    one = code_ranking.rank_pieces(scores, CodeQuestion("b"), pieces.__getitem__, no_texts, 400)
    other = code_ranking.rank_pieces(
        {row + 7: score for row, score in reversed(scores.items())},
        CodeQuestion("b"),
        lambda row: pieces[row - 7],
        no_texts,
        400,
    )
    assert {row + 7: score for row, score in one.items()} == other
    assert all(isinstance(score, int) for score in one.values())


def test_unscored_question_leaves_the_ranking_unchanged():
    assert ranked("x", piece("a.py"), scores=(-5,))[1] == {0: -5}
    assert code_ranking.rank_pieces({}, CodeQuestion("x"), {}.__getitem__, no_texts, 0) == {}
