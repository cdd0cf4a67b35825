"""Words and their scores as SQLite's FTS5 and loops over its rows give them: the reference for
`vmrag_link.index.postings` and `vmrag_link.retrieval.bm25`.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence

from vmrag_link.index.keywords import TOKENS
from vmrag_link.retrieval.bm25 import BILLION, Corpus

MOST_PARTS = 32


class FtsWords:
    """Chunks in a table with a column for each of at most three fields. `rowid` is the slot."""

    def __init__(self, chunks: Iterable[Sequence[str]]) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.execute(f"CREATE VIRTUAL TABLE keywords USING fts5(text, parts, names, {TOKENS})")
        self.connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab('keywords', 'instance')")
        self.connection.executemany(
            "INSERT INTO keywords(rowid, text, parts, names) VALUES (?, ?, ?, ?)",
            ((slot, *chunk, *[None] * (3 - len(chunk))) for slot, chunk in enumerate(chunks)),
        )

    def close(self) -> None:
        self.connection.close()

    def slots_with(self, terms: Sequence[str], *, names: bool = False) -> list[int]:
        """Return the slots that hold a word, once for each occurrence."""
        where = "term = ? AND col = 'names'" if names else "term = ?"
        begins: set[tuple[int, str, int]] = set()
        for number, term in enumerate(terms[:MOST_PARTS]):
            statement = f"SELECT doc, col, offset - ? FROM terms WHERE {where}"
            places = set(self.connection.execute(statement, (number, term)))
            begins = begins & places if number else places
        return sorted(slot for slot, _, _ in begins)

    def token_counts(self) -> list[int]:
        """Return the number of tokens of each chunk."""
        tokens = Counter(slot for (slot,) in self.connection.execute("SELECT doc FROM terms"))
        rows = self.connection.execute("SELECT rowid FROM keywords ORDER BY rowid")
        return [tokens[slot] for (slot,) in rows]


def bm25_scores(
    words: Sequence[Sequence[int]],
    first_of: dict[int, int],
    tokens: dict[int, int],
    document_tokens: dict[int, int],
    weight: float,
) -> tuple[dict[int, int], int]:
    """Return the scores of all chunks that hold a word, in billionths, and the highest possible.

    `words`: the chunks that hold each word, once for each occurrence. A document has the number of
    its first chunk.
    """
    total = sum(tokens.values())
    chunks, documents = Corpus(len(tokens), total), Corpus(len(document_tokens), total)
    scores: dict[int, float] = {}
    of_documents: dict[int, float] = {}
    most = 0.0
    for occurrences in words:
        in_chunks, in_documents = Counter(occurrences), Counter(first_of[chunk] for chunk in occurrences)
        gain, base, slope = chunks.compute_factors(len(in_chunks))
        most += gain
        for chunk, frequency in in_chunks.items():
            score = gain * frequency / (frequency + base + slope * tokens[chunk])
            scores[chunk] = scores.get(chunk, 0.0) + score
        gain, base, slope = documents.compute_factors(len(in_documents))
        most += weight * gain
        for document, frequency in in_documents.items():
            score = gain * frequency / (frequency + base + slope * document_tokens[document])
            of_documents[document] = of_documents.get(document, 0.0) + score
    billionths = {
        chunk: round((score + weight * of_documents[first_of[chunk]]) * BILLION) for chunk, score in scores.items()
    }
    return billionths, max(1, round(most * BILLION))
