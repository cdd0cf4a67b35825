"""What a store beside the knowledge base has of its work tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmrag_link.embedding.cache import EmbeddingCache
    from vmrag_link.paths import Places
    from vmrag_link.progress import Progress
    from vmrag_link.retrieval.fusion import Ranking
    from vmrag_link.settings import Config
    from vmrag_link.workspace.models import Models
    from vmrag_link.workspace.worktree import WorkTree


class StoreBesideWorkTree:
    """Has a work tree's settings and models."""

    def __init__(self, ws: WorkTree) -> None:
        self._ws = ws

    @property
    def places(self) -> Places:
        return self._ws.places

    @property
    def progress(self) -> Progress:
        return self._ws.progress

    @property
    def models(self) -> Models:
        return self._ws.models

    @property
    def config(self) -> Config:
        return self._ws.settings.config

    @property
    def ranking(self) -> Ranking:
        from vmrag_link.retrieval import fusion

        return fusion.ranking(self.config.retrieval)

    @property
    def lock_timeout(self) -> float:
        return self._ws.settings.lock_timeout

    @property
    def embedding_cache(self) -> EmbeddingCache:
        return self._ws.embedding_cache
