"""Answer from words and names that can be read immediately, before an index exists.

`git grep` counts the words of a query in the files of sources. The best files are read and cut as
the index cuts them. Vectors are not used, and checks do not compare these answers.
"""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Collection as Several
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.code import cutting
from vmrag_link.code.languages import CutBudget
from vmrag_link.documents.chunking import read_header_paths, split_document
from vmrag_link.errors import no_collection
from vmrag_link.git import grep, readonly
from vmrag_link.index import keywords
from vmrag_link.models import SOURCE, Chunk, Collection, Document, IndexedPiece, format_notes_metadata, parse_pieces
from vmrag_link.ops.query.packed_answer import symbol_span
from vmrag_link.ops.query.symbols import SymbolDefinition, definitions_in, sort_definitions
from vmrag_link.retrieval import kinds
from vmrag_link.retrieval.narrowing import Narrowing, has_capitals, make_narrowing
from vmrag_link.retrieval.narrowing_filter import NarrowingFilter, SymbolFilter
from vmrag_link.retrieval.query import MAX_PACKED_HITS
from vmrag_link.shown_names import name_among
from vmrag_link.sources import documents as sources
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.packing import PackableDocument, PackableHit, Packed, pack_hits
from vmrag_link.workspace.answers.passage_places import PassagePlaces
from vmrag_link.workspace.source_tree import Key, SourceTree

_MAX_WORDS = 8
"""Maximum number of query words that are counted, the longest first, because they are usually the
rarest.
"""

_MAX_FILES = 24
"""Maximum number of files that are read and cut for a query."""

_MAX_DEFINING_FILES = 60
"""Maximum number of files that are read and cut for a name."""

_MAX_FILE_BYTES = 1 << 20
"""A larger file is not read."""

_READ_SECONDS = 1.5
"""Time before the deadline that is left for reading and cutting the best files."""

_MIN_GREP_SECONDS = 0.5
_MIN_STEM_CHARACTERS = 4

_PATH_WEIGHT = 1.0
"""Weight of a word in the path of a file, compared with a text full of it."""

_NAME_WEIGHT = 1.5
"""Weight of a word in a heading or in the name of a symbol, in the same unit."""

_FILE_SHARE = 0.3
"""Part of its file's score that a passage gets."""

_MAX_FILE_PASSAGES = 3
_SATURATION = 1.2
_LENGTH_NORM = 0.75
"""The parameters k1 and b of BM25."""


class WordQuestion(NamedTuple):
    """A query."""

    words: str
    collection: str
    """Empty for all collections."""
    narrowed: Narrowing | None
    """Filters, or None."""


class _Piece(NamedTuple):
    """A chunk of a file with its score."""

    key: Key
    score: float
    chunk: Chunk


class WordSearch:
    """A search in the files of the work tree or of a commit.

    It ends about at `deadline`, a monotonic time.

    Raises `CollectionMissing` if the tree has no such collection.
    """

    def __init__(self, ws: Workspace, tree: SourceTree, question: WordQuestion, deadline: float) -> None:
        self._ws = ws
        self._tree = tree
        self._question = question
        self._deadline = deadline
        names = [source.collection for source in tree.sources]
        if question.collection and question.collection not in names:
            raise no_collection(question.collection, names)
        self._filter = NarrowingFilter(question.narrowed or Narrowing())
        self._keys = {file.path: key for key, file in tree.files.items() if self._is_asked(key)}
        self._rows = {
            source.collection: Collection(
                source.collection,
                kind=SOURCE,
                metadata=format_notes_metadata(source.folder) if source.write else "{}",
                chunking=sources.CHUNKING[source.kind],
            )
            for source in tree.sources
        }

    def _is_asked(self, key: Key) -> bool:
        is_code = self._tree.is_code(key)
        if self._question.collection not in ("", key[0]) or not self._filter.accepts_kind(is_code=is_code):
            return False
        return self._filter.accepts_file((key[1], self._tree.files[key].path), is_code=is_code)

    def find_passages(self, budget: int) -> Packed:
        """Return the best passages within a budget of tokens."""
        weights, scores = self._rank_files()
        best = sorted(scores, key=lambda key: (-scores[key], key))[:_MAX_FILES]
        documents = self._read_files(best)
        pieces = [piece for document in documents.values() for piece in self._score_pieces(document, weights, scores)]
        pieces.sort(key=lambda piece: (-piece.score, piece.key, piece.chunk.number))
        return self._pack_pieces(self._order_kinds(pieces)[:MAX_PACKED_HITS], documents, budget)

    def _order_kinds(self, pieces: Sequence[_Piece]) -> Sequence[_Piece]:
        """Return documents and code in turns. The kind of the best piece begins."""
        of_code = [piece for piece in pieces if self._tree.is_code(piece.key)]
        documents = [piece for piece in pieces if not self._tree.is_code(piece.key)]
        if not of_code or not documents:
            return pieces
        first_is_code = kinds.prefers_code(self._question.words, documents[0].score, of_code[0].score)
        return kinds.alternate_kinds(of_code, documents) if first_is_code else kinds.alternate_kinds(documents, of_code)

    def find_definitions(self, name: str) -> list[SymbolDefinition]:
        """Return where code defines a name.

        The files are read first in which the name is next to a word such as `class`.
        """
        parsed = make_narrowing(symbols=[name])
        symbol = parsed.symbols[0] if parsed else ""
        last = max(re.findall(r"\w+", symbol.rpartition(".")[2]) or [""], key=len)
        if not last:
            return []
        whole = "*" not in symbol
        ignore_case = not has_capitals(symbol)
        counts = self._count_lines(last, words=whole, ignore_case=ignore_case)
        declaring = self._count_lines(last, words=whole, ignore_case=ignore_case, beside=cutting.DECLARING_WORDS)
        keys = [key for key in counts if self._tree.is_code(key)]
        keys.sort(key=lambda key: (key not in declaring, -counts[key], key))
        matcher = SymbolFilter(symbol, within=False)
        rows = [
            definition
            for document in self._read_files(keys[:_MAX_DEFINING_FILES]).values()
            for definition in definitions_in(document, matcher, self._filter)
        ]
        changed = {key: file.uncommitted for key, file in self._tree.files.items()}
        return sort_definitions(symbol, rows, lambda row: changed.get((row.collection, row.path), ""))

    def _rank_files(self) -> tuple[dict[str, float], dict[Key, float]]:
        """Return the weights of the words that files have, and the scores of these files."""
        scores: dict[Key, float] = defaultdict(float)
        weights: dict[str, float] = {}
        sizes = [self._tree.files[key].size for key in self._keys.values()]
        mean = sum(sizes) / len(sizes) if sizes else 1
        words = sorted(_find_stems(self._question.words), key=len, reverse=True)[:_MAX_WORDS]
        in_paths = self._find_in_paths(words)
        for word in words:
            if weights and time.monotonic() > self._deadline - _READ_SECONDS:
                break
            counts = self._count_lines(word)
            number = len(counts.keys() | in_paths[word])
            if not number:
                continue
            weight = math.log(1 + (len(self._keys) - number + 0.5) / (number + 0.5))
            weights[word] = weight
            for key, count in counts.items():
                length = 1 - _LENGTH_NORM + _LENGTH_NORM * self._tree.files[key].size / mean
                scores[key] += weight * count / (count + _SATURATION * length)
            for key in in_paths[word]:
                scores[key] += weight * _PATH_WEIGHT
        return weights, scores

    def _find_in_paths(self, words: Iterable[str]) -> dict[str, set[Key]]:
        """Return the files whose paths have each word."""
        keys_by_word: dict[str, set[Key]] = {word: set() for word in words}
        for path, key in self._keys.items():
            parts = keywords.split_names([path])
            for word, keys in keys_by_word.items():
                if any(part.startswith(word) for part in parts):
                    keys.add(key)
        return keys_by_word

    def _count_lines(
        self, text: str, *, beside: Sequence[str] = (), words: bool = False, ignore_case: bool = True
    ) -> dict[Key, int]:
        """Return how many lines of each file have a text; none for files that git could not search
        in time.
        """
        trees = [("", self._ws.places, self._tree.commit)]  # with the path of a submodule before its files
        for submodule in self._tree.submodules:
            if submodule.places:
                commit = submodule.commit if self._tree.commit else None
                trees.append((f"{submodule.path}/", submodule.places, commit))
        counts_by_path: dict[str, int] = {}
        for start, places, commit in trees:
            seconds = max(_MIN_GREP_SECONDS, self._deadline - _READ_SECONDS - time.monotonic())
            try:
                counts = grep.count_lines(
                    places, text, beside=beside, commit=commit, words=words, ignore_case=ignore_case, seconds=seconds
                )
            except TimeoutError:
                break
            counts_by_path |= {start + path: count for path, count in counts.items()}
        return {self._keys[path]: count for path, count in counts_by_path.items() if path in self._keys}

    def _read_files(self, keys: Sequence[Key]) -> dict[Key, Document]:
        """Return the files as documents, in this order; code with its pieces."""
        read_texts = sources.read_texts_at_commit if self._tree.commit else sources.read_texts_in_work_tree
        budget = CutBudget(_READ_SECONDS)
        documents: dict[Key, Document] = {}
        for source in self._tree.sources:
            files = [self._tree.files[key] for key in keys if key[0] == source.collection]
            files = [file for file in files if file.size <= _MAX_FILE_BYTES]
            for _, document in sources.build_documents(source, files, read_texts(self._tree.places, files), budget):
                if isinstance(document, Document):
                    documents[document.key] = document
        return {key: documents[key] for key in keys if key in documents}

    def _score_pieces(
        self, document: Document, weights: Mapping[str, float], scores: Mapping[Key, float]
    ) -> Iterator[_Piece]:
        is_code = self._tree.is_code(document.key)
        pieces = parse_pieces(document) if is_code else ()
        headings = None if is_code else read_header_paths(document)
        best = []
        for chunk in split_document(document, sources.CHUNKING["code" if is_code else "document"]):
            if is_code and not self._filter.accepts_piece(pieces[chunk.number]):
                continue
            name = headings.find_passage_path(chunk.start) if headings else _symbol_names(pieces[chunk.number])
            text = chunk.text.lower()
            counts = {word: text.count(word) for word in weights}
            score = sum(weights[word] * count / (count + _SATURATION) for word, count in counts.items())
            score += sum(weight * _NAME_WEIGHT for word, weight in weights.items() if word in name.lower())
            if score or not weights:
                best.append(_Piece(document.key, score + _FILE_SHARE * scores.get(document.key, 0), chunk))
        best.sort(key=lambda piece: (-piece.score, piece.chunk.number))
        yield from best[:_MAX_FILE_PASSAGES]

    def _pack_pieces(self, pieces: Sequence[_Piece], documents: Mapping[Key, Document], budget: int) -> Packed:
        files = self._tree.files
        blobs = {key: files[key].blob for key in documents}
        committed = readonly.read_blobs(self._tree.places, blobs.values()) if self._tree.commit else {}
        names = name_among(list(documents), {name for name, row in self._rows.items() if row.has_paths_as_ids})
        packable: dict[Hashable, PackableDocument] = {}
        hits = []
        places = {
            key: PassagePlaces(
                self._ws,
                self._rows[key[0]],
                document,
                committed.get(blobs[key], b"") if self._tree.commit else None,
            )
            for key, document in documents.items()
        }
        for rank, piece in enumerate(pieces, start=1):
            place = places[piece.key]
            span = (piece.chunk.start, piece.chunk.end)
            if piece.key not in packable:
                above = place.lines_above()
                packable[piece.key] = PackableDocument(
                    *piece.key,
                    text=place.text,
                    path=place.path if above is not None else None,
                    above=above or 0,
                    pieces=place.pieces,
                    headings=place.headings,
                    table_headers=place.table_headers,
                    commit=self._tree.commit,
                    uncommitted=files[piece.key].uncommitted,
                    name=names[piece.key],
                    kind="code" if self._tree.is_code(piece.key) else "document",
                )
            spans = (symbol_span(place, piece.chunk.number), span) if place.pieces else (span,)
            hits.append(PackableHit(rank, piece.key, spans))
        return pack_hits(hits, packable, budget)


def _symbol_names(piece: IndexedPiece) -> str:
    return " ".join([piece.symbol, *(symbol for symbol, *_ in piece.declared)])


def _find_stems(text: str) -> Several[str]:
    """Return the stem of each word in lower case, or the word if it does not begin with
    its stem.
    """
    stems: dict[str, None] = {}
    words = keywords.split_query(text)
    for word in [word for word in words if len(word) > 1] or words:
        terms = keywords.list_terms([word])
        stem = terms[0][0] if terms and len(terms[0]) == 1 else ""
        stems[stem if len(stem) >= _MIN_STEM_CHARACTERS and word.startswith(stem) else word] = None
    return list(stems)
