"""The yardstick of queries by words: `bm25s`, for the best ten texts.

`python bare_words.py TEXTS QUERIES`, each a JSON list of texts. For each line on its input it asks
all queries and prints seconds of CPU.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

BEST = 10


def serve(ask: Callable[[str], object], queries: list[str]) -> None:
    for query in queries:
        ask(query)
    for _ in sys.stdin:
        start = time.process_time()
        for query in queries:
            ask(query)
        print(time.process_time() - start, flush=True)


def main(texts_file: Path, queries_file: Path) -> None:
    import bm25s

    model = bm25s.BM25()
    model.index(bm25s.tokenize(json.loads(texts_file.read_bytes()), show_progress=False), show_progress=False)

    def ask(query: str) -> object:
        tokens = bm25s.tokenize(query, return_ids=False, show_progress=False)
        return model.retrieve(tokens, k=BEST, show_progress=False)

    serve(ask, json.loads(queries_file.read_bytes()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
