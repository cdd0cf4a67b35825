"""The golden queries: the work tree's file of them, read and written back whole, and what one index
answers to all.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from vmrag_link.errors import CollectionMissing, QueriesInvalid, QueriesMissing, in_the_way, quoted
from vmrag_link.git import plumbing
from vmrag_link.golden import file
from vmrag_link.golden.queries import NO_NAMES, UPDATE, GoldenFile, GoldenNames, RankedChunk, rank_chunks
from vmrag_link.models import SOURCE, Record
from vmrag_link.paths import QUERIES_NAME, describe_file_type, read_regular, require_folders, write_atomically
from vmrag_link.progress import Progress
from vmrag_link.retrieval.search import Searcher
from vmrag_link.settings import RetrievalSettings
from vmrag_link.shown_names import DocumentKey
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.passages import names_of_keys

_MAKE_ONE = f"mkdir -p .vmrag && printf 'queries:\\n  - query: how do keys rotate?\\n' > {QUERIES_NAME} && {UPDATE}"
ASKING = "asking the golden queries"


class StoredQueries(Record, frozen=True):
    """The golden queries, and the bytes that say so."""

    golden: GoldenFile
    data: bytes


def load_queries(ws: Workspace) -> StoredQueries:
    """Raises `QueriesMissing`, `QueriesInvalid`, and `FileFailed` for what is no file."""
    data = _read(ws)
    return StoredQueries(file.parse_queries(data, QUERIES_NAME), data)


def load_queries_at(ws: Workspace, commit: str) -> GoldenFile | None:
    """Those that a commit holds, by its full hash; None if it has none.

    Raises `QueriesInvalid`, `GitFailed` for what is no file or too long, and `GitReferenceMissing`.
    """
    data = plumbing.read_blob(ws.places, f"{commit}:{QUERIES_NAME}", limit=file.MAX_BYTES)
    return None if data is None else file.parse_queries(data, f"{commit[:12]}:{QUERIES_NAME}")


def store_queries(ws: Workspace, before: StoredQueries, data: bytes) -> GoldenFile:
    """Replace the file in one step. Raises `QueriesInvalid` if it is not what it was `before`."""
    if _read(ws) != before.data:
        raise QueriesInvalid(
            f"{QUERIES_NAME} was changed while its queries were asked; it stays as it is.",
            hint=UPDATE,
            file=QUERIES_NAME,
        )
    write_atomically(ws.places.queries, data)
    return file.parse_queries(data, QUERIES_NAME)


def _read(ws: Workspace) -> bytes:
    path = ws.places.queries
    require_folders(path.parent)
    try:
        return read_regular(path, file.MAX_BYTES + 1)
    except FileNotFoundError:
        raise QueriesMissing(
            f"There are no golden queries: {QUERIES_NAME} is missing in {ws.places.top}.",
            hint=f"cd {quoted(ws.places.top)} && {_MAKE_ONE}",
            file=QUERIES_NAME,
        ) from None
    except OSError as error:
        if what := describe_file_type(path):
            raise in_the_way(path, f"{what}, and no file") from error
        raise


class GoldenAnswer(Record, frozen=True):
    """`problem`: why the query could not be asked; empty if it could. `texts`, `titles`: of the
    chunks in `found` and of their documents, empty where there is none. `names`: of all documents
    that the queries found or expect.
    """

    found: tuple[RankedChunk, ...]
    problem: str = ""
    texts: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    names: GoldenNames = NO_NAMES


def answer_queries(
    searcher: Searcher, golden: GoldenFile, settings: RetrievalSettings, progress: Progress
) -> list[GoldenAnswer]:
    """In the order of the queries. A collection that is not there is one query's problem; every
    other failure is everybody's, and raised.
    """
    asked = [query.build_query(settings) for query in golden.queries]
    searcher.prepare_queries(asked)
    found = []
    keys: set[DocumentKey] = set()
    with progress.task(ASKING, len(asked)) as task:
        for each in asked:
            try:
                hits = searcher.search(each)
                texts, titles = (hit.text for hit in hits), (str(hit.metadata.get("title", "")) for hit in hits)
                keys.update((hit.collection, hit.doc_id) for hit in hits)
                found.append(GoldenAnswer(rank_chunks(hits), texts=tuple(texts), titles=tuple(titles)))
            except CollectionMissing as error:
                found.append(GoldenAnswer((), error.message.rstrip(".")))
            task.advance()
    names = _resolve_names(searcher, golden, keys)
    return [replace(answer, names=names) for answer in found]


def _resolve_names(searcher: Searcher, golden: GoldenFile, keys: set[DocumentKey]) -> GoldenNames:
    """Names for these documents and those that the queries expect. A path that is also the full
    name of another document gets the collection, because a recorded name means that one.
    """
    full: dict[str, str] = {}
    for name in {name for query in golden.queries for name in query.named_documents}:
        key = _key_of(searcher, name)
        if key is None and (key := _key_of_path(searcher, name)):
            full[name] = "/".join(key)
        keys |= {key} if key else set()
    return GoldenNames(full, {"/".join(key): name for key, name in _safe_names(searcher, keys).items()})


def find_shown_name(searcher: Searcher, full: str) -> str:
    """Return what to print for the full name of a document."""
    key = _key_of(searcher, full)
    return _safe_names(searcher, [key]).get(key, full) if key else full


def _safe_names(searcher: Searcher, keys: Collection[DocumentKey]) -> dict[DocumentKey, str]:
    names = names_of_keys(searcher, keys)
    return {key: name for key, name in names.items() if _key_of(searcher, name) in (None, key)}


def _key_of(searcher: Searcher, name: str) -> DocumentKey | None:
    """Return the document with this full name."""
    homes = [row.name for row in searcher.list_collections() if name.startswith(f"{row.name}/")]
    keys = ((home, name[len(home) + 1 :]) for home in homes)
    return next((key for key in keys if searcher.count_chunks(key[0], [key[1]])), None)


def _key_of_path(searcher: Searcher, path: str) -> DocumentKey | None:
    """Return the only file with this path."""
    sources = [row.name for row in searcher.list_collections() if row.kind == SOURCE]
    homes = [home for home in sources if searcher.count_chunks(home, [path])]
    return (homes[0], path) if len(homes) == 1 else None
