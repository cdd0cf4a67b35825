"""Read and write the file of golden queries, and answer these queries.

A golden query is a query with the documents that its answer must contain. The file
`.vmrag/queries.yaml` is committed with the code. `vmrag check` and the pytest plugin compare the
answers with it (`vmrag_link.golden`).
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from vmrag_link.errors import CollectionMissing, QueriesInvalid, QueriesMissing, in_the_way, quoted
from vmrag_link.file_access import describe_file_type, read_regular, require_folders, write_atomically
from vmrag_link.git import plumbing
from vmrag_link.golden import file
from vmrag_link.golden.queries import NO_NAMES, UPDATE, GoldenFile, GoldenNames, RankedChunk, rank_chunks
from vmrag_link.models import SOURCE, Record
from vmrag_link.paths import QUERIES_NAME
from vmrag_link.progress import Progress
from vmrag_link.retrieval.search import Searcher
from vmrag_link.settings import RetrievalSettings
from vmrag_link.shown_names import DocumentKey
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.passages import names_of_keys

_MAKE_ONE = f'mkdir -p .vmrag && printf "queries:\\n  - query: how do keys rotate?\\n" > {QUERIES_NAME} && {UPDATE}'
ASKING = "asking the golden queries"


class StoredQueries(Record, frozen=True):
    """The golden queries, and the bytes of their file."""

    golden: GoldenFile
    data: bytes


def load_queries(ws: Workspace) -> StoredQueries:
    """Return the golden queries of the work tree.

    Raises `QueriesMissing`, `QueriesInvalid`, and `FileFailed` if the path is not a file.
    """
    data = _read_file(ws)
    return StoredQueries(file.parse_queries(data, QUERIES_NAME), data)


def load_queries_at(ws: Workspace, commit: str) -> GoldenFile | None:
    """Return the golden queries of a commit, by its full hash; None if it has none.

    Raises `QueriesInvalid`, `GitReferenceMissing`, and `GitFailed` if the path is not a file or the
    file is too long.
    """
    data = plumbing.read_blob(ws.places, f"{commit}:{QUERIES_NAME}", limit=file.MAX_BYTES)
    return None if data is None else file.parse_queries(data, f"{commit[:12]}:{QUERIES_NAME}")


def store_queries(ws: Workspace, before: StoredQueries, data: bytes) -> GoldenFile:
    """Replace the file by `data` atomically, and return its queries.

    `before`: the file as it was read. Raises `QueriesInvalid` if it has changed since.
    """
    if _read_file(ws) != before.data:
        raise QueriesInvalid(
            f"{QUERIES_NAME} changed while vmrag asked its queries, so vmrag did not write it.",
            hint=f"run '{UPDATE}' to record the results",
            file=QUERIES_NAME,
        )
    write_atomically(ws.places.queries, data)
    return file.parse_queries(data, QUERIES_NAME)


def _read_file(ws: Workspace) -> bytes:
    path = ws.places.queries
    require_folders(path.parent)
    try:
        return read_regular(path, file.MAX_BYTES + 1)
    except FileNotFoundError:
        raise QueriesMissing(
            f"no golden queries: {QUERIES_NAME} is missing in {ws.places.top}.",
            hint=f"run 'cd {quoted(ws.places.top)} && {_MAKE_ONE}'",
            file=QUERIES_NAME,
        ) from None
    except OSError as error:
        if what := describe_file_type(path):
            raise in_the_way(path, f"{what}, and not a file") from error
        raise


class GoldenAnswer(Record, frozen=True, rename={"chunks": "found"}):
    """The answer to a golden query."""

    chunks: tuple[RankedChunk, ...]
    problem: str = ""
    """Why the query failed; empty if it did not."""
    texts: tuple[str, ...] = ()
    """The texts of the chunks in `chunks`."""
    titles: tuple[str, ...] = ()
    """The titles of the documents of the chunks; empty for a document without a title."""
    names: GoldenNames = NO_NAMES
    """The names of all documents that the queries found or expect."""


def answer_queries(
    searcher: Searcher, golden: GoldenFile, settings: RetrievalSettings, progress: Progress
) -> list[GoldenAnswer]:
    """Return the answers in the order of the queries.

    A missing collection is recorded as the problem of its query. Every other failure is raised.
    """
    parameters = [query.build_query(settings) for query in golden.queries]
    searcher.prepare_queries(parameters)
    answers = []
    keys: set[DocumentKey] = set()
    with progress.task(ASKING, len(parameters)) as task:
        for query in parameters:
            try:
                hits = searcher.search(query)
            except CollectionMissing as error:
                answers.append(GoldenAnswer((), error.message.rstrip(".")))
            else:
                keys.update((hit.collection, hit.doc_id) for hit in hits)
                texts = tuple(hit.text for hit in hits)
                titles = tuple(str(hit.metadata.get("title", "")) for hit in hits)
                answers.append(GoldenAnswer(rank_chunks(hits), texts=texts, titles=titles))
            task.advance()
    names = _resolve_names(searcher, golden, keys)
    return [replace(answer, names=names) for answer in answers]


def _resolve_names(searcher: Searcher, golden: GoldenFile, keys: set[DocumentKey]) -> GoldenNames:
    """Return the names of the documents `keys` and of those that the queries expect.

    A query names a document by its full name (`COLLECTION/ID`), or by the path of a file.
    """
    full_names: dict[str, str] = {}
    expected_names = {name for query in golden.queries for name in query.named_documents}
    for name in expected_names:
        key = _find_key(searcher, name)
        if key is None:
            key = _find_key_of_path(searcher, name)
            if key:
                full_names[name] = "/".join(key)
        if key:
            keys.add(key)
    names = _list_unambiguous_names(searcher, keys)
    return GoldenNames(full_names, {"/".join(key): name for key, name in names.items()})


def find_shown_name(searcher: Searcher, full: str) -> str:
    """Return what to print for the full name of a document."""
    key = _find_key(searcher, full)
    return _list_unambiguous_names(searcher, [key]).get(key, full) if key else full


def _list_unambiguous_names(searcher: Searcher, keys: Collection[DocumentKey]) -> dict[DocumentKey, str]:
    """Return the printed names, without those that are also the full name of another document."""
    names = names_of_keys(searcher, keys)
    return {key: name for key, name in names.items() if _find_key(searcher, name) in (None, key)}


def _find_key(searcher: Searcher, name: str) -> DocumentKey | None:
    """Return the key of the document with this full name, or None."""
    collections = [row.name for row in searcher.list_collections() if name.startswith(f"{row.name}/")]
    keys = ((collection, name[len(collection) + 1 :]) for collection in collections)
    return next((key for key in keys if searcher.count_chunks(key[0], [key[1]])), None)


def _find_key_of_path(searcher: Searcher, path: str) -> DocumentKey | None:
    """Return the key of the file with this path, if only one collection of files has it."""
    sources = [row.name for row in searcher.list_collections() if row.kind == SOURCE]
    collections = [collection for collection in sources if searcher.count_chunks(collection, [path])]
    return (collections[0], path) if len(collections) == 1 else None
