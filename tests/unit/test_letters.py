"""Words of texts that are not ASCII, in an index, in queries and in highlighted passages."""

# ruff: noqa: RUF001
from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vmrag_link.index import keywords, letters
from vmrag_link.index.postings import DOCUMENT_FIELDS, BlockWriter, Postings

ALPHABET = "aZ9_ -.éÄßİıệđﬁＡ１ｶﾞガかが々ー中文設컴포ㄱㅏสวัด็हिन्दीлйёΆث\u0301\u0323\u0302\u3099\u00ad\u200b。・"
TEXT = st.text() | st.text(st.sampled_from(ALPHABET), max_size=30)
UNSPACED = st.text(st.sampled_from("設定を変える检测컴포넌트สวัสดี"), min_size=1, max_size=40)


def index(*texts: str) -> Postings:
    writer = BlockWriter(DOCUMENT_FIELDS)
    writer.add_chunks([(text,) for text in texts])
    return Postings(writer.end_block(), slots=len(texts))


def find(words: Postings, query: str) -> list[set[int]]:
    """Return the chunks that hold each word of a query."""
    return [
        {slot for _, slots, _ in words.find_lists(terms) for slot in slots}
        for terms in keywords.find_query_terms(query)
        if terms
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("設定を変更", ["設定", "定を", "を変", "変更"]),
        ("Vueの設定", ["vue", "の設", "設定"]),
        ("Vueの", ["vue", "の"]),
        ("コンピューター・データ。", ["コン", "ンピ", "ピュ", "ュー", "ータ", "ター", "デー", "ータ"]),
        ("컴포넌트를 쓰다", ["컴포", "포넌", "넌트", "트를", "쓰다"]),
        ("สวัสดี", ["สว", "วั", "ัส", "สด", "ดี"]),
        ("ﾃﾞｰﾀ ＡＢＣ１", ["デー", "ータ", "abc1"]),
        ("İstanbul i̇stanbul ISPARTA ısparta", ["istanbul", "istanbul", "isparta", "isparta"]),
        ("Việt Nam ﬁn Straße ĐƯỜNG", ["viet", "nam", "fin", "strasse", "duong"]),
        ("Silben\u00adtrennung und\u200bRaum", ["silbentrennung", "und", "raum"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("größe_max é.e 🦉", ["grosse", "max", "e", "e"]),
        ("é" * 2_000, ["e" * letters.LONGEST]),
    ],
)
def test_split_words_returns_folded_words(text, words):
    assert letters.split_words(text) == words
    assert letters.split_words(unicodedata.normalize("NFD", text)) == words


@given(TEXT)
def test_locate_words_returns_same_words_in_order(text):
    located = letters.locate_words(text)
    assert [word for _, _, word in located] == letters.split_words(text)
    assert all(0 <= start < end <= len(text) for start, end, _ in located)
    assert located == sorted(located, key=lambda place: place[:2])


@given(st.lists(TEXT, min_size=1, max_size=3), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_index_is_equal_for_all_spellings(texts, form):
    def block(some: list[str]) -> bytes:
        writer = BlockWriter(DOCUMENT_FIELDS)
        writer.add_chunks([(text,) for text in some])
        return writer.end_block()

    if form in ("NFC", "NFD"):
        assert block(texts) == block([unicodedata.normalize(form, text) for text in texts])
    words = [letters.split_words(text) for text in texts]
    assert words == [letters.split_words(unicodedata.normalize(form, text)) for text in texts]


@given(TEXT)
def test_every_text_is_found_by_its_words(text):
    query_terms = keywords.find_query_terms(text)
    assume(["owl"] not in query_terms)
    assert find(index("owl", text), text) == [{1}] * len(query_terms)
    [_, marked] = keywords.find_matches(text, ["owl", text])
    assert bool(marked) == bool(query_terms)


@given(UNSPACED, st.data())
def test_every_part_of_a_run_is_found(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    part = unicodedata.normalize(data.draw(st.sampled_from(["NFC", "NFD"])), text[start:end])
    assume(len(letters.fold(part)) > 1 or len(text) == 1)
    query = keywords.find_query_terms(part)
    assert query
    assert find(index("owl", f"Vue {text}, x"), part) == [{1}] * len(query)


def test_sentence_is_found_among_forty_chapters():
    chapter = "この章では基本的な使い方と設定の手順を順番に説明します。データベースの接続も確認します。"
    chapters = [f"第{number}章。{chapter}" for number in range(40)]
    chapters[27] += "停電の後は蓄電池の残量を必ず点検してください。"
    words = index(*chapters)
    held = [terms for terms in find(words, "蓄電池の残量を点検する方法") if 0 < len(terms) < 40]
    assert held
    assert all(terms == {27} for terms in held)


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("残量", "蓄電池の残量を点検", ["残量"]),
        ("残量を点検", "蓄電池の残量を点検", ["残量を点検"]),
        ("cafe", "Das Cafe\u0301 und das CAFÉ", ["Cafe\u0301", "CAFÉ"]),
        ("データ", "ﾃﾞｰﾀとデータ", ["ﾃﾞｰﾀ", "データ"]),
        ("istanbul", "İstanbul", ["İstanbul"]),
        ("strasse", "Die Straße", ["Straße"]),
        ("choose", "we chose owls", ["chose"]),
        ("Scheinwerfer", "Der Rückfahrscheinwerfer", ["Rückfahrscheinwerfer"]),
        ("Scheinwerfer", "Nebelscheinwerfer und Scheinwerfer", ["Scheinwerfer"]),
        ("電", "蓄電池", ["蓄電池"]),
        ("get_close", "get_close close get", ["get_close"]),
    ],
)
def test_matches_marks_words_as_written(query, text, marked):
    [spans] = keywords.find_matches(query, [text])
    assert [text[start:end] for start, end in spans] == marked


def test_irregular_forms_have_the_term_of_their_base():
    forms = "chose chosen wrote indices children froze matrices"
    assert [terms for [terms] in keywords.find_query_terms(forms)] == [
        terms for [terms] in keywords.list_terms("choose choose write index child freeze matrix".split())
    ]
    assert not keywords.IRREGULAR.keys() & set(keywords.IRREGULAR.values())


def test_names_are_equal_for_all_spellings():
    assert (
        keywords.split_names(["docs/Cafe\u0301.md"]) == keywords.split_names(["docs/Café.md"]) == {"docs", "cafe", "md"}
    )


@pytest.mark.parametrize("marks", ["\u0301\u0327", "\u094d\u093c", "\u0f71\u0f72\u0f74"])
def test_endless_marks_take_linear_time(marks):
    text = f"e{marks * 25_000} rotor"
    start = time.process_time()
    assert letters.split_words(text)[-1] == letters.locate_words(text)[-1][2] == "rotor"
    assert letters.list_written(text)[-1] == "rotor"
    assert time.process_time() - start < 4


def test_many_marks_are_of_their_word():
    assert letters.split_words("e" + "\u0301\u0327" * 14 + "tude") == ["etude"]
