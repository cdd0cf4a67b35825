"""The golden queries: the work tree's file of them, read and written back whole, and what one index
answers to all.
"""

from __future__ import annotations

from vmrag_link.errors import CollectionMissing, QueriesInvalid, QueriesMissing, in_the_way, quoted
from vmrag_link.git import plumbing
from vmrag_link.golden import file
from vmrag_link.golden.queries import UPDATE, GoldenFile, RankedChunk, ranked
from vmrag_link.models import Record
from vmrag_link.paths import QUERIES_NAME, read_regular, require_folders, what_it_is, write_atomically
from vmrag_link.progress import Progress
from vmrag_link.retrieval.search import Searcher
from vmrag_link.settings import RetrievalSettings
from vmrag_link.workspace import Workspace

_MAKE_ONE = f"mkdir -p .vmrag && printf 'queries:\\n  - query: how do keys rotate?\\n' > {QUERIES_NAME} && {UPDATE}"
ASKING = "asking the golden queries"


class StoredQueries(Record, frozen=True):
    """The golden queries, and the bytes that say so."""

    golden: GoldenFile
    data: bytes


def load(ws: Workspace) -> StoredQueries:
    """Raises `QueriesMissing`, `QueriesInvalid`, and `FileFailed` for what is no file."""
    data = _read(ws)
    return StoredQueries(file.read(data, QUERIES_NAME), data)


def load_at(ws: Workspace, commit: str) -> GoldenFile | None:
    """Those that a commit holds, by its full hash; None if it has none.

    Raises `QueriesInvalid`, `GitFailed` for what is no file or too long, and `GitReferenceMissing`.
    """
    data = plumbing.blob(ws.places, f"{commit}:{QUERIES_NAME}", limit=file.MAX_BYTES)
    return None if data is None else file.read(data, f"{commit[:12]}:{QUERIES_NAME}")


def store(ws: Workspace, before: StoredQueries, data: bytes) -> GoldenFile:
    """Replace the file in one step. Raises `QueriesInvalid` if it is not what it was `before`."""
    if _read(ws) != before.data:
        raise QueriesInvalid(
            f"{QUERIES_NAME} was changed while its queries were asked; it stays as it is.",
            hint=UPDATE,
            file=QUERIES_NAME,
        )
    write_atomically(ws.places.queries, data)
    return file.read(data, QUERIES_NAME)


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
        if what := what_it_is(path):
            raise in_the_way(path, f"{what}, and no file") from error
        raise


class GoldenAnswer(Record, frozen=True):
    """`problem`: why the query could not be asked; empty if it could. `texts`, `titles`: of the
    chunks in `found` and of their documents, empty where there is none.
    """

    found: tuple[RankedChunk, ...]
    problem: str = ""
    texts: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()


def answers(
    searcher: Searcher, golden: GoldenFile, settings: RetrievalSettings, progress: Progress
) -> list[GoldenAnswer]:
    """In the order of the queries. A collection that is not there is one query's problem; every
    other failure is everybody's, and raised.
    """
    asked = [query.asked(settings) for query in golden.queries]
    searcher.prepare(asked)
    found = []
    with progress.task(ASKING, len(asked)) as task:
        for each in asked:
            try:
                hits = searcher.search(each)
                texts, titles = (hit.text for hit in hits), (str(hit.metadata.get("title", "")) for hit in hits)
                found.append(GoldenAnswer(ranked(hits), texts=tuple(texts), titles=tuple(titles)))
            except CollectionMissing as error:
                found.append(GoldenAnswer((), error.message.rstrip(".")))
            task.advance()
    return found
