"""A retriever for LangChain (extra `langchain`).

```python
from vmrag_link.langchain import VmragRetriever

retriever = VmragRetriever(repository=".", k=4)
documents = retriever.invoke("how do requests time out")
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

import vmrag_link
from vmrag_link.api.knowledge_base import KnowledgeBase
from vmrag_link.api.passage_metadata import list_metadata, passage_id

__all__ = ["VmragRetriever"]


class VmragRetriever(BaseRetriever):
    """Retrieve passages of the documents, code and notes of a git work tree.

    The metadata of each document has `path`, `lines`, `commit` and `symbol`. Raises errors of
    `vmrag_link.errors`.
    """

    repository: str = "."
    """A folder in the git work tree."""
    at: str | None = None
    """The git ref to read, for example the commit of a release; None for the work tree."""
    follow: bool = False
    """If True, each call reads the current state of the work tree, instead of its state at the
    first call.
    """
    k: int | None = None
    """The number of documents (default: the setting `retrieval.k`)."""
    search_kwargs: Mapping[str, Any] = {}
    """More arguments of `KnowledgeBase.search`, for example `{"path": "docs/"}`."""

    _kb: KnowledgeBase

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._kb = vmrag_link.open(self.repository, at=self.at, follow=self.follow)

    @property
    def kb(self) -> KnowledgeBase:
        """The open knowledge base."""
        return self._kb

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **given: Any
    ) -> list[Document]:
        del run_manager
        passages = self._kb.search(query, **{"k": self.k, **self.search_kwargs, **given})
        return [
            Document(id=passage_id(passage), page_content=passage.text, metadata=list_metadata(passage))
            for passage in passages
        ]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **given: Any
    ) -> list[Document]:
        return await asyncio.to_thread(self._get_relevant_documents, query, run_manager=run_manager.get_sync(), **given)
