"""Answers from an index: exact, filtered, and the same however the index came to be."""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
import subprocess
import sys

import pytest

from tests.support import knowledge
from tests.support.knowledge import ROOT, Knowledge, collection, doc
from vmrag_link.documents.chunking import split_text
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.errors import CollectionMissing, EmbeddingMismatch, FilterInvalid, UsageInvalid
from vmrag_link.index import draft, flat_files
from vmrag_link.index import view as views
from vmrag_link.index.contents import read_contents
from vmrag_link.models import Chunking
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.retrieval.ranker import VECTOR_UNIT
from vmrag_link.retrieval.ranking import DEFAULT_RANKING, Ranking, hash_contents
from vmrag_link.retrieval.search import Searcher

kb = knowledge.kb

WORDS = "owl fox night forest river stone winter hunger light path bird nest hunt sleep snow rain tree root leaf seed".split()
SMALL = Chunking(size=60, overlap=10)


def prose(dice: random.Random, words: int) -> str:
    return " ".join(dice.choices(WORDS, k=words))


def reference(kb: Knowledge, query: Query, texts: dict[tuple[str, str, int], str]) -> list[tuple]:
    """Vector scores by whole numbers in plain Python."""
    model = kb.models["hash"]

    def whole(text: str) -> list[int]:
        return [byte - 256 if byte > 127 else byte for byte in flat_files.quantise(model.embed([text])[0])]

    vector = whole(query.text)
    scored = sorted(
        (-sum(a * b for a, b in zip(vector, whole(text), strict=True)), place) for place, text in texts.items()
    )
    return [(*place, round(-negative / VECTOR_UNIT, 6)) for negative, place in scored[: query.k]]


def test_read_embeddings_returns_model_vectors_with_and_without_cache(kb):
    dice = random.Random(2)
    texts = [prose(dice, 40), "owl"]
    revision = kb.commit(doc("long", texts[0]), doc("b", texts[1]), collections=[collection(chunking=SMALL)])
    path = kb.index(revision).path
    cut = {f"long_chunk_{chunk.number}": chunk.text for chunk in split_text(texts[0], SMALL)} | {"b_chunk_0": "owl"}
    made = kb.models["hash"].embed([*cut.values()])
    expected = {name: list(struct.unpack("<256f", vector)) for name, vector in zip(cut, made, strict=True)}
    names = [*cut, "long_chunk_99", "nobody_chunk_0", "no chunk"]
    with contextlib.closing(Searcher(path, kb.model_for)) as searcher:
        assert searcher.read_embeddings("guide", names, kb.cache) == expected
        assert searcher.read_embeddings("guide", names, EmbeddingCache(kb.folder / "another.sqlite")) == expected
        assert searcher.read_embeddings("guide", [], kb.cache) == {}


def places(hits: list) -> list[tuple]:
    return [(hit.collection, hit.doc_id, hit.chunk, hit.score) for hit in hits]


def test_vector_scores_are_those_of_whole_numbers_in_plain_python(kb):
    dice = random.Random(1)
    documents = [doc(f"d{n}", prose(dice, 8)) for n in range(60)] + [doc("twin", "owl owl"), doc("alike", "owl owl")]
    notes = [doc(f"n{n}", prose(dice, 8), collection="notes") for n in range(20)]
    revision = kb.commit(*documents, *notes, collections=[collection(), collection("notes")])
    path = kb.index(revision).path
    texts = {(document.collection, document.doc_id, 0): document.content for document in documents + notes}
    for text in ("owl at night", "stone river", "snow", "nothing of this kind", "", "owl owl"):
        query = Query(text, k=15, mode=Mode.VECTOR)
        assert places(kb.search(path, text, k=15, mode=Mode.VECTOR)) == reference(kb, query, texts)


@pytest.mark.parametrize("mode", list(Mode))
def test_equal_scores_are_ordered_by_collection_document_and_chunk(kb, mode):
    names = ["b", "a", "C", "ä", "a_chunk_0", "z"]
    texts = [doc(name, "owl fox", collection=where) for where in ("notes", "guide") for name in names]
    long = doc("long", "owl fox" + " " * 5 + "owl fox", collection="guide")
    revision = kb.commit(
        *texts, long, collections=[collection(chunking=Chunking(size=12, overlap=0)), collection("notes")]
    )
    hits = kb.search(kb.index(revision).path, "owl fox", k=50, mode=mode, where={"source_id": {"$ne": "long"}})
    expected = [(where, name) for where in ("guide", "notes") for name in sorted(names)]
    assert [(hit.collection, hit.doc_id) for hit in hits] == expected
    assert [hit.rank for hit in hits] == list(range(1, 13))
    few = kb.search(kb.index(revision).path, "owl fox", k=5, mode=mode, where={"source_id": {"$ne": "long"}})
    assert [(hit.collection, hit.doc_id) for hit in few] == expected[:5]


# -- the same answers, however the index came to be ------------------------------------------------

FILTERS = [
    {},
    {"where": {"team": "red"}},
    {"where": {"year": {"$gte": 2024}, "team": {"$ne": "red"}}},
    {"where_document": {"$contains": "owl"}},
    {"where": {"tags": {"$contains": "x"}}, "where_document": {"$not_contains": "fox"}},
]
QUERIES = [
    Query(text, collections=collections, k=12, mode=mode, **narrowed)
    for text in ("owl at night", "the river stone", "root")
    for collections in (None, ("notes",))
    for mode in Mode
    for narrowed in FILTERS
]


def random_document(dice: random.Random, name: str, where: str):
    metadata = dice.choice([{}, {"team": "red", "year": 2023}, {"team": "blue", "year": 2025, "tags": ["x", "y"]}])
    return doc(name, prose(dice, dice.randint(1, 40)), collection=where, metadata=metadata)


def test_fresh_grown_and_rebuilt_indexes_give_the_same_bytes(kb, monkeypatch):
    monkeypatch.setattr(draft, "SMALL_SEGMENT", 3)
    dice = random.Random(7)
    rows = [collection(chunking=SMALL), collection("notes", chunking=SMALL)]
    before = kb.commit(*[random_document(dice, f"d{n}", "guide") for n in range(40)], collections=rows)
    kb.index(before)
    alive = {("guide", f"d{n}") for n in range(40)}
    for number in range(20):
        gone = dice.sample(sorted(alive), k=dice.randint(0, 2))
        edited = [key for key in dice.sample(sorted(alive), k=2) if key not in gone]
        new = [(dice.choice(["guide", "notes"]), f"new{number}")]
        after = kb.commit(*[random_document(dice, name, where) for where, name in (*edited, *new)], remove=gone)
        alive = alive.difference(gone) | set(new)
        built = kb.index(after, base=before)
        kb.views.remove_if_unused(kb.views.view_path(before))
        before = after
    grown = kb.answers(built.path, QUERIES)
    parts = views.read_view(built.path).parts
    assert len(parts) > 1
    assert any(piece.dead for part in parts for piece in part.pieces.values())
    headers = read_contents(built.path).headers.values()
    assert hash_contents(DEFAULT_RANKING, rows, headers) == hash_contents(
        DEFAULT_RANKING, kb.engine.list_collections(before), kb.engine.read_headers(before)
    )
    shutil.rmtree(built.path)
    rebuilt = kb.index(before)
    assert rebuilt.how == "fresh"
    assert kb.answers(rebuilt.path, QUERIES) == grown
    shutil.copytree(kb.views.segments.root, kb.folder / "restored" / "segments")
    restored = shutil.copytree(rebuilt.path, kb.folder / "restored" / "views" / "elsewhere")
    assert kb.answers(restored, QUERIES) == grown
    (elsewhere := kb.folder / "elsewhere").mkdir()
    other = Knowledge(elsewhere)
    other.write(collections=rows)
    documents = list(kb.engine.read_documents(before))
    dice.shuffle(documents)
    second = other.commit(*documents)
    assert other.answers(other.index(second).path, QUERIES) == grown
    other.close()


def openblas() -> bool:
    import numpy as np

    return "openblas" in str(np.show_config(mode="dicts")).lower()


KERNELS = [("Prescott", 1), ("Haswell", 2), ("SkylakeX", 1), ("Zen", 2), ("Nehalem", 2)]

ANSWER = """
import sys
from tests.support.knowledge import *
from vmrag_link.retrieval.query import Mode
kb = Knowledge(Path(sys.argv[1]))
path = Path(sys.argv[2])
queries = [Query(text, k=30, mode=mode) for text in ('owls hunt at night', 'a river of stones') for mode in Mode]
print(kb.answers(path, queries))
kb.close()
"""


@pytest.mark.skipif(not openblas(), reason="numpy's BLAS is not OpenBLAS, so its kernels cannot be chosen")
@pytest.mark.long
def test_every_blas_kernel_and_number_of_threads_gives_the_same_bytes(kb):
    dice = random.Random(3)
    documents = [doc(f"d{n}", prose(dice, 12)) for n in range(300)]
    revision = kb.commit(*documents, collections=[collection(model="default")])
    path = kb.index(revision).path
    answers = {}
    for kernel, threads in KERNELS:
        result = subprocess.run(
            [sys.executable, "-c", ANSWER, str(kb.folder), str(path)],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": str(threads)},
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode == -4:  # SIGILL: this processor has no such instructions
            continue
        assert result.returncode == 0, result.stderr
        answers[kernel] = result.stdout
    assert len(answers) >= 2
    assert len(set(answers.values())) == 1
    assert "owl" in answers.popitem()[1]


def test_searcher_does_not_share_filters_between_different_queries(kb):
    documents = [
        doc("tls", "keys of TLS rotate", metadata={"n": 1}),
        doc("ssh", "keys of SSH rotate", metadata={"n": 2}),
    ]
    path = kb.index(kb.commit(*documents, collections=[collection()])).path
    queries = [
        (Query("keys", where=where, where_document=text), mode)
        for where, text, mode in (
            (None, {"$contains": "TLS"}, {"tls"}),
            (None, {"$contains": "SSH"}, {"ssh"}),
            ({"n": 1}, None, {"tls"}),
            ({"n": 2}, None, {"ssh"}),
            ({"n": 2}, {"$contains": "TLS"}, set()),
            (None, None, {"tls", "ssh"}),
        )
    ]
    with contextlib.closing(Searcher(path, kb.model_for)) as searcher:
        for query, expected in queries:
            assert {hit.doc_id for hit in searcher.search(query)} == expected


# -- how many chunks of one document ---------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
@pytest.mark.sample(5)
def test_answer_limits_chunks_per_document_and_keeps_its_order(kb, mode, limit):
    dice = random.Random(11)
    rows = [collection(chunking=SMALL), collection("notes", chunking=SMALL)]
    documents = [
        doc(f"d{n}", prose(dice, dice.choice([5, 60, 300])), collection=dice.choice(["guide", "notes"]))
        for n in range(30)
    ]
    path = kb.index(kb.commit(*documents, collections=rows)).path
    everything = kb.search(path, "owl at night", k=1000, mode=mode)
    taken: dict[tuple, int] = {}
    expected = []
    for place in places(everything):
        taken[place[:2]] = taken.get(place[:2], 0) + 1
        if taken[place[:2]] <= limit:
            expected.append(place)
    ranking = Ranking(per_document=limit)
    assert places(kb.search(path, "owl at night", k=1000, mode=mode, ranking=ranking)) == expected
    for where in ({}, {"where": {"source_id": {"$ne": "d1"}}}):
        few = kb.search(path, "owl at night", k=3, mode=mode, ranking=ranking, **where)
        assert len(few) == 3


def test_document_that_fills_the_ranking_does_not_keep_others_out(kb):
    long = doc("long", " ".join(["owl fox night"] * 4000))
    path = kb.index(
        kb.commit(long, *[doc(f"d{n}", "stone owl") for n in range(4)], collections=[collection(chunking=SMALL)])
    ).path
    for mode in Mode:
        match = kb.search(path, "owl fox night", k=5, mode=mode, ranking=Ranking(per_document=1))
        assert [hit.doc_id for hit in match] == ["long", "d0", "d1", "d2", "d3"]
        assert {hit.doc_id for hit in kb.search(path, "owl fox night", k=5, mode=mode)} == {"long"}


@pytest.mark.parametrize("mode", list(Mode))
def test_document_without_ties_in_ranking_does_not_keep_others_out(kb, mode):
    long = doc("long", " ".join(f"owl fox night {' '.join(WORDS[3 : 3 + n % 17])}" for n in range(400)))
    others = [doc(f"d{n}", f"owl {WORDS[n + 3]} {'stone ' * (30 + n)}") for n in range(4)]
    path = kb.index(kb.commit(long, *others, collections=[collection(chunking=SMALL)])).path
    scores = [hit.score for hit in kb.search(path, "owl fox night", k=1000, mode=mode)]
    deep = next(n for n in range(100, len(scores)) if scores[n - 1] > scores[n])
    match = kb.search(path, "owl fox night", k=deep, mode=mode, ranking=Ranking(per_document=1))
    assert {hit.doc_id for hit in match} == {"long", "d0", "d1", "d2", "d3"}


# -- several collections ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.sample(1)
def test_change_in_one_collection_keeps_ranking_of_others(kb, mode):
    dice = random.Random(23)
    rows = [collection(chunking=SMALL), collection("notes", chunking=SMALL)]
    guide = [doc(f"d{n}", prose(dice, dice.choice([5, 60]))) for n in range(30)]
    before = kb.commit(*guide, doc("n", "owl at night", collection="notes"), collections=rows)
    paths = [kb.index(before).path]
    many = [doc(f"n{n}", " ".join(["owl night river"] * dice.randint(1, 30)), collection="notes") for n in range(40)]
    paths.append(kb.index(kb.commit(*many), base=before).path)
    for text in ("owl at night", "the river stone"):
        alone = [places(kb.search(path, text, k=1000, mode=mode, collections=("guide",))) for path in paths]
        assert alone[0] == alone[1]
        both = [places(kb.search(path, text, k=1000, mode=mode)) for path in paths]
        assert {place[0] for place in both[1]} == {"guide", "notes"}
        for answer in both:
            assert [place[:3] for place in answer if place[0] == "guide"] == [place[:3] for place in alone[0]]


@pytest.mark.parametrize("mode", [Mode.KEYWORD, Mode.HYBRID])
@pytest.mark.parametrize("notes", [1, 2, 3])
def test_search_finds_note_by_question_with_one_word_more(kb, mode, notes):
    """A word that all documents of a small collection hold still tells them from other pages."""
    dice = random.Random(29)
    pages = [doc(f"d{number}", prose(dice, dice.choice([5, 60]))) for number in range(40)]
    texts = {"one": "quokka", "two": "quokka owl", "three": "quokka owl fox", "four": "quokka wombat numbat night"}
    noted = [doc(str(number), text, collection=name) for name, text in texts.items() for number in range(notes)]
    rows = [collection(), *map(collection, texts)]
    path = kb.index(kb.commit(*pages, *noted, collections=rows)).path
    for name, text in texts.items():
        for more in ("bandicoot", "hunger"):  # no page holds the first word, and some hold the second
            hits = kb.search(path, f"{text} {more}", k=notes, mode=mode, collections=("guide", name))
            assert {hit.collection for hit in hits} == {name}, (text, more)
            assert hits[0].score > 0.01


@pytest.mark.parametrize("mode", [Mode.KEYWORD, Mode.HYBRID])
@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("why did we choose pagefind", "We chose Pagefind over Algolia."),
        ("Scheinwerfer reinigen", "Der Rückfahrscheinwerfer wird mit Wasser gereinigt."),
        ("蓄電池の残量", "停電の後は蓄電池の残量を必ず点検してください。"),
        ("배터리 잔량", "정전 후에는 배터리의 잔량을 반드시 점검하십시오."),
        ("แบตเตอรี่", "หลังไฟดับต้องตรวจสอบแบตเตอรี่ทุกครั้ง"),
        ("cafe\u0301 İzmir", "Das Café in I\u0307zmir"),
    ],
)
def test_search_finds_text_as_people_write_it(kb, mode, question, text):
    dice = random.Random(31)
    pages = [doc(f"d{number}", prose(dice, 60)) for number in range(40)]
    path = kb.index(kb.commit(*pages, doc("answer", f"{prose(dice, 30)} {text} {prose(dice, 30)}"))).path
    hits = kb.search(path, question, k=3, mode=mode)
    assert hits[0].doc_id == "answer"


# -- words of the document -------------------------------------------------------------------------


def test_chunk_from_the_document_on_the_topic_precedes_an_equal_one(kb):
    """The topic is in other chunks of its document."""
    room = " " * 40
    documents = [
        doc("a-cooking", f"stir the pot gently{room}reset it now{room}salt and pepper"),
        doc("b-router", f"the router has lights{room}reset it now{room}the router again"),
        *[doc(f"c{n}", f"tree number {n}") for n in range(20)],
    ]
    path = kb.index(kb.commit(*documents, collections=[collection(chunking=Chunking(size=40, overlap=0))])).path
    match = kb.search(path, "reset router", mode=Mode.KEYWORD, where_document={"$contains": "reset"})
    assert [hit.doc_id for hit in match] == ["b-router", "a-cooking"]
    assert match[0].score > match[1].score
    without = kb.search(
        path,
        "reset router",
        mode=Mode.KEYWORD,
        where_document={"$contains": "reset"},
        ranking=Ranking(document_weight=0.0),
    )
    assert [hit.doc_id for hit in without] == ["a-cooking", "b-router"]
    assert without[0].score == without[1].score


def test_hybrid_score_is_one_for_best_by_words_and_meaning(kb):
    documents = [
        doc("best", "owl fox night"),
        doc("other", "owl stone"),
        *[doc(f"d{n}", "rain tree") for n in range(9)],
    ]
    path = kb.index(kb.commit(*documents, collections=[collection()])).path
    hits = kb.search(path, "owl fox night", k=11)
    assert (hits[0].doc_id, hits[0].score) == ("best", 1.0)
    assert all(-1 <= hit.score < 1 for hit in hits[1:])
    for weight, mode in ((0.0, Mode.KEYWORD), (1.0, Mode.VECTOR)):
        ranking = Ranking(vector_weight=weight)
        alone = [hit.doc_id for hit in kb.search(path, "owl stone night", k=2, mode=mode, ranking=ranking)]
        assert [hit.doc_id for hit in kb.search(path, "owl stone night", k=2, ranking=ranking)] == alone


@pytest.mark.parametrize(
    ("model", "question", "share"),
    [
        ("default", "where is the rain", 0.4),
        ("default", "wo ist der rain", 0.2),
        ("default", "雨 rain", 0.2),
        ("hash", "wo ist der rain", 0.4),
    ],
)
def test_vectors_get_half_weight_if_model_does_not_know_the_language(kb, model, question, share):
    documents = [
        doc("a", "rain owl"),
        doc("b", "where the rain falls"),
        doc("c", "der rain ist wo"),
        doc("d", "雨 river"),
    ]
    path = kb.index(kb.commit(*documents, collections=[collection(model=model)])).path

    def shares(mode: Mode) -> dict[str, float]:
        scores = {hit.doc_id: hit.score for hit in kb.search(path, question, k=4, mode=mode)}
        return {name: score / max(scores.values()) for name, score in scores.items()}

    words, vectors = shares(Mode.KEYWORD), shares(Mode.VECTOR)
    for hit in kb.search(path, question, k=4):
        expected = share * vectors[hit.doc_id] + (1 - share) * words.get(hit.doc_id, 0)
        assert hit.score == pytest.approx(expected, abs=1e-4)


def test_vectors_get_full_weight_if_one_model_knows_the_language(kb):
    documents = [doc("a", "der rain ist wo"), doc("b", "wo rain"), doc("c", "rain owl", collection="more")]
    collections = [collection(model="default"), collection("more")]
    path = kb.index(kb.commit(*documents, collections=collections)).path
    by_vector = {hit.doc_id: hit.score for hit in kb.search(path, "wo ist der rain", mode=Mode.VECTOR)}
    for hit in kb.search(path, "wo ist der rain", ranking=Ranking(vector_weight=1.0)):
        assert hit.score == pytest.approx(by_vector[hit.doc_id] / max(by_vector.values()), abs=1e-4)


# -- filters ---------------------------------------------------------------------------------------


@pytest.fixture
def filtered(kb: Knowledge):
    """Searches a small knowledge base; returns the ids that were found, sorted."""
    rows = {
        "red": {"team": "red", "year": 2023, "tags": ["x"], "open": True},
        "blue": {"team": "blue", "year": 2025, "tags": ["x", "y"], "open": False},
        "bare": {},
    }
    documents = [doc(name, f"owl says {name.upper()}", metadata=row) for name, row in rows.items()]
    path = kb.index(kb.commit(*documents, collections=[collection()])).path

    def search(where=None, text=None, mode=Mode.HYBRID) -> list[str]:
        hits = kb.search(path, "owl", k=50, mode=mode, where=where, where_document=text)
        return sorted(hit.doc_id for hit in hits)

    return search


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, ["bare", "blue", "red"]),
        ({}, ["bare", "blue", "red"]),
        ({"team": "red"}, ["red"]),
        ({"team": {"$ne": "red"}}, ["bare", "blue"]),
        ({"team": {"$nin": ["red", "green"]}}, ["bare", "blue"]),
        ({"team": {"$in": ["red", "blue"]}}, ["blue", "red"]),
        ({"year": {"$gt": 2023}}, ["blue"]),
        ({"year": {"$gte": 2023, "$lt": 2025}}, ["red"]),
        ({"year": {"$gt": "2023"}}, []),
        ({"team": {"$gt": "blue"}}, ["red"]),
        ({"team": "red", "year": 2023}, ["red"]),
        ({"team": "red", "year": 2025}, []),
        ({"$or": [{"team": "red"}, {"year": 2025}]}, ["blue", "red"]),
        ({"$and": [{"team": "red"}]}, ["red"]),
        ({"tags": {"$contains": "y"}}, ["blue"]),
        ({"tags": {"$not_contains": "y"}}, ["bare", "red"]),
        ({"open": True}, ["red"]),
        ({"source_id": "bare"}, ["bare"]),
        ({"no such key": 1}, []),
    ],
)
def test_metadata_filters_match_those_of_chroma(filtered, mode, where, expected):
    assert filtered(where, mode=mode) == expected


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ({"$contains": "RED"}, ["red"]),
        ({"$contains": "red"}, []),
        ({"$not_contains": "RED"}, ["bare", "blue"]),
        ({"$regex": "B[AL]"}, ["bare", "blue"]),
        ({"$or": [{"$contains": "RED"}, {"$contains": "BARE"}]}, ["bare", "red"]),
    ],
)
def test_text_filters_match_those_of_chroma(filtered, mode, text, expected):
    assert filtered(text=text, mode=mode) == expected


def test_filter_that_cannot_be_evaluated_is_refused(filtered):
    for where, text in [
        ({"year": {"$gt": True}}, None),
        ({"team": {"$in": ["a", 1]}}, None),
        (None, {"$regex": "("}),
    ]:
        with pytest.raises(FilterInvalid):
            filtered(where, text)


def test_filters_on_a_chunks_place_and_text_mean_that_chunk(kb):
    text = " ".join(f"owl{number} owl" for number in range(60))
    guide = collection(chunking=Chunking(size=60, overlap=0))
    path = kb.index(kb.commit(doc("long", text), doc("short", "owl0 owl"), collections=[guide])).path
    whole = {hit.chunk: hit.text for hit in kb.search(path, "owl", k=99) if hit.doc_id == "long"}
    assert len(whole) > 5

    def found(**filters) -> list[tuple[str, int]]:
        return sorted((hit.doc_id, hit.chunk) for hit in kb.search(path, "owl", k=99, **filters))

    assert found(where={"chunk_index": {"$lt": 2}}) == [("long", 0), ("long", 1), ("short", 0)]
    assert found(where={"chunk_index": {"$lt": 2}, "total_chunks": len(whole)}) == [("long", 0), ("long", 1)]
    assert found(where={"chunk_index": 0}, where_document={"$contains": "owl0 "}) == [("long", 0), ("short", 0)]
    for word in ("owl0 ", "owl30 ", "owl59 "):
        [*places_with_word] = [("long", number) for number, value in whole.items() if word in value]
        assert found(where={"source_id": "long"}, where_document={"$contains": word}) == places_with_word != []
    others = [("long", number) for number, text in sorted(whole.items()) if "owl30" not in text]
    assert found(where_document={"$not_contains": "owl30"}) == [*others, ("short", 0)]


def test_filter_finds_documents_outside_of_the_best(kb):
    many = [doc(f"d{n:04}", "owl owl owl") for n in range(400)]
    path = kb.index(
        kb.commit(*many, doc("far", "the fox saw an owl once", metadata={"team": "red"}), collections=[collection()])
    ).path
    for mode in Mode:
        assert [hit.doc_id for hit in kb.search(path, "owl", k=3, mode=mode, where={"team": "red"})] == ["far"]


# -- edges -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
def test_empty_collection_answers_nothing(kb, mode):
    path = kb.index(kb.commit(collections=[collection()])).path
    assert kb.search(path, "owl", mode=mode) == []
    assert kb.search(path, "owl", mode=mode, where={"a": 1}) == []


def test_collection_without_documents_answers_nothing(kb):
    first = kb.commit(doc("a", "owl"), collections=[collection()])
    kb.index(first)
    path = kb.copied(first, "emptied")
    kb.write(remove=[("guide", "a")])
    kb.bring_working(path, first)
    for mode in Mode:
        assert kb.search(path, "owl", mode=mode) == []


@pytest.mark.parametrize("mode", list(Mode))
def test_large_limit_returns_all_results(kb, mode):
    path = kb.index(kb.commit(doc("a", "owl"), doc("b", "owl too"), collections=[collection()])).path
    assert len(kb.search(path, "owl", k=1000, mode=mode)) == 2


@pytest.mark.parametrize(
    "text", ["", "  \n", "?!… --", '"', "__", "'); DROP TABLE x; --", "owl\0", "NEAR(a b)", "a* OR b", "🦉"]
)
def test_search_accepts_any_text(kb, text):
    path = kb.index(kb.commit(doc("a", "owl"), collections=[collection()])).path
    for mode in Mode:
        assert kb.search(path, text, mode=mode) == kb.search(path, text, mode=mode)
    assert len(kb.search(path, text, mode=Mode.VECTOR)) == 1


def test_query_of_stop_words_only_looks_for_them(kb):
    path = kb.index(kb.commit(doc("a", "to be or not"), doc("b", "owl"), collections=[collection()])).path
    assert [hit.doc_id for hit in kb.search(path, "not to be", mode=Mode.KEYWORD)] == ["a"]
    assert [hit.doc_id for hit in kb.search(path, "what is the owl", mode=Mode.KEYWORD)] == ["b"]


def test_search_accepts_a_text_as_long_as_a_document(kb):
    path = kb.index(kb.commit(doc("a", "owl"), collections=[collection()])).path
    text = " ".join(f"word{number}" for number in range(5_000)) + " owl"
    assert [hit.doc_id for hit in kb.search(path, text)] == ["a"]


def test_unknown_collections_and_impossible_numbers_are_refused(kb):
    path = kb.index(kb.commit(doc("a", "owl"), collections=[collection()])).path
    with pytest.raises(CollectionMissing, match="nowhere"):
        kb.search(path, "owl", collections=("guide", "nowhere"))
    with pytest.raises(UsageInvalid):
        kb.search(path, "owl", k=0)


def test_vectors_of_another_model_are_not_compared(kb):
    path = kb.index(kb.commit(doc("a", "owl"), collections=[collection()])).path

    class Newer:
        fingerprint = "another model v2"

    kb.models["hash"] = Newer()
    with pytest.raises(EmbeddingMismatch, match="another model v2"):
        kb.search(path, "owl")
    assert len(kb.search(path, "owl", mode=Mode.KEYWORD)) == 1


def test_title_is_part_of_the_answer_unless_the_metadata_has_one(kb):
    documents = [
        doc("a", "owl", title="Owls"),
        doc("b", "owl", title="Birds", metadata={"title": "mine", "deep": {"x": [1]}}),
    ]
    path = kb.index(kb.commit(*documents, collections=[collection()])).path
    metadata = {hit.doc_id: hit.metadata for hit in kb.search(path, "owl")}
    assert metadata == {"a": {"title": "Owls"}, "b": {"title": "mine", "deep": {"x": [1]}}}
    assert [hit.doc_id for hit in kb.search(path, "owl", where={"title": "mine"})] == ["b"]
