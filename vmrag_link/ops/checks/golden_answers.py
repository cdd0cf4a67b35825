"""What one index answers to all golden queries."""

from __future__ import annotations

from vmrag_link.errors import CollectionMissing
from vmrag_link.golden.queries import GoldenFile, RankedChunk, ranked
from vmrag_link.models import Record
from vmrag_link.progress import Progress
from vmrag_link.retrieval.search import Searcher
from vmrag_link.settings import RetrievalSettings

ASKING = "asking the golden queries"


class GoldenAnswer(Record, frozen=True):
    """`problem`: why the query could not be asked; empty if it could."""

    found: tuple[RankedChunk, ...]
    problem: str = ""


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
                found.append(GoldenAnswer(ranked(searcher.search(each))))
            except CollectionMissing as error:
                found.append(GoldenAnswer((), error.message.rstrip(".")))
            task.advance()
    return found
