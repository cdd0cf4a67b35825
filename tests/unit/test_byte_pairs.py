"""The default model's tokens are those that the library `tokenizers` makes of the same file."""

from __future__ import annotations

import hashlib
import itertools
import random
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import default_model
from tests.support.long import examples
from vmrag_link.embedding import byte_pairs, static
from vmrag_link.embedding.byte_pairs import SPACE, BytePairTokenizer

ROOT = Path(__file__).parents[2]
CONTENT = default_model.DESCRIPTION.read_bytes()
GROUPS = msgspec.json.decode((static.FOLDER / static.GROUPS).read_bytes())


def make_tokenizer() -> BytePairTokenizer:
    return static.StaticModel()._tokenizer


OURS = make_tokenizer()
PARTS = [
    "<s>",
    "</s>",
    "<unk>",
    "<",
    " ",
    "  ",
    "\n",
    "\t",
    SPACE,
    "a",
    "the",
    "Zeit",
    "вода",
    "é",
    "e\u0301",
    "水",
    "🙂",
    "():",
    "=>",
    "7",
]


@cache
def library() -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    made = tokenizers.Tokenizer.from_buffer(CONTENT)
    made.no_padding()
    made.no_truncation()
    return made


def expected(texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in library().encode_batch_fast(texts, add_special_tokens=False)]


def assert_alike(texts: list[str], tokenizer: BytePairTokenizer = OURS) -> None:
    for text, expected_ids in zip(texts, expected(texts), strict=True):
        assert tokenizer.encode(text) == expected_ids, text


def test_files_of_the_model_follow_from_the_description() -> None:
    assert hashlib.sha256(CONTENT).hexdigest() == static.TOKENIZER_SHA256
    made = {static.MERGES: default_model.merges(CONTENT), static.CHARACTERS: default_model.characters(CONTENT)}
    assert {name: (static.FOLDER / name).read_bytes() for name in made} == made
    description = msgspec.json.decode(CONTENT)
    vocabulary = description["model"]["vocab"]
    assert {token["content"]: token["id"] for token in description["added_tokens"]} == static.SPECIAL
    assert all(vocabulary[f"<0x{byte:02X}>"] == static.FIRST_BYTE + byte for byte in range(256))
    assert len(vocabulary) <= 1 << 16


def test_each_token_is_made_by_merging_its_characters() -> None:
    for token, number in msgspec.json.decode(CONTENT)["model"]["vocab"].items():
        if token not in static.SPECIAL and not token.startswith("<0x"):
            assert OURS._merge_pairs(token) == number.to_bytes(4, sys.byteorder), token


@given(st.text(st.sampled_from("aeinorst ▁.,é水"), max_size=90))
@settings(max_examples=examples(300))
def test_both_ways_to_merge_have_equal_results(text: str) -> None:
    tokens = [token for character in text for token in OURS.encode(character)]
    assert OURS._join_few([*tokens]) == OURS._join_many(tokens)


@pytest.mark.parametrize("few", [1, 10**9])
def test_tokens_are_equal_with_a_dictionary_and_without(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(byte_pairs, "_FEW_PIECES", few)
    tokenizer = make_tokenizer()
    for texts in itertools.islice(corpus(300_000), 30):
        assert_alike([*texts, "x" * 100], tokenizer)


def test_tokens_do_not_cross_text_boundaries() -> None:
    """Spaces are only at the beginning of tokens, and a token's characters are of one group."""
    vocabulary = msgspec.json.decode(CONTENT)["model"]["vocab"]
    assert (static.FOLDER / static.GROUPS).read_bytes() == default_model.groups(CONTENT)
    groups = list(map(set, GROUPS))
    assert {len(group) for group in groups[:3]} == {109, 68, 45}
    for token in vocabulary:
        bare = token.lstrip(SPACE)
        if len(bare) > 1 and token not in OURS._special and not token.startswith("<0x"):
            assert SPACE not in bare
            assert any(set(bare) <= group for group in groups), token


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=8), max_size=12).map("".join))
@settings(max_examples=examples(1000))
def test_any_text_has_the_tokens_of_the_library(text: str) -> None:
    assert_alike([text])


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        SPACE,
        "<s>",
        "<s><s>",
        " <s> ",
        "a</s>b",
        "<s",
        "\n\n",
        " " * 100,
        f" {SPACE} ",
        "x" * 5000,
        "." * 999,
        "\0\x7f\uffff",
    ],
)
def test_odd_texts_have_the_tokens_of_the_library(text: str) -> None:
    assert_alike([text])


def corpus(most: int) -> Iterator[list[str]]:
    """Texts of chunks, from this repository and from the files of this Python, in any order."""
    folders = [ROOT / "docs", ROOT / "vmrag_link", ROOT / "tests"]
    folders += [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")] if most > 2_000_000 else []
    files = sorted(path for folder in folders for kind in ("*.md", "*.py", "*.json") for path in folder.rglob(kind))
    random.Random(34).shuffle(files)
    for number, path in enumerate(files):
        text = path.read_bytes().decode(errors="replace")
        yield [text[at : at + 1000] for at in range(0, len(text), 1000)] if number % 10 else [text]
        most -= len(text)
        if most < 0:
            return


def test_documentation_and_code_have_the_tokens_of_the_library() -> None:
    for texts in corpus(1_000_000):
        assert_alike(texts)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_fifty_megabytes_have_the_tokens_of_the_library() -> None:
    for texts in corpus(50_000_000):
        assert_alike(texts)


def test_tokenizer_cache_is_bounded_and_thread_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_pairs, "MAX_REMEMBERED_CHARS", 500)
    tokenizer = make_tokenizer()
    texts = [" ".join(f"word{number} wort{number}" for number in range(start, start + 20)) for start in range(400)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.encode, texts)) == list(map(OURS.encode, texts))
    assert sum(map(len, tokenizer._known_pieces)) < 1000
