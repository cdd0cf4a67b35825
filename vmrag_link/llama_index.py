"""A retriever for LlamaIndex (extra `llama-index`).

```python
from llama_index.core.query_engine import RetrieverQueryEngine
from vmrag_link.llama_index import VmragRetriever

engine = RetrieverQueryEngine.from_args(VmragRetriever(".", k=4), llm=llm)
print(engine.query("how do requests time out"))
```
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode

import vmrag_link
from vmrag_link.api.knowledge_base import KnowledgeBase
from vmrag_link.api.passage_metadata import list_metadata, passage_id
from vmrag_link.api.results import FoundPassage

__all__ = ["VmragRetriever"]

_SHOWN = ("source", "symbol", "heading")
"""Keys of the metadata that a language model can read."""


class VmragRetriever(BaseRetriever):
    """Retrieve passages of the documents, code and notes of a git work tree.

    `repository`: a folder in the work tree. `at` and `follow`: as in `vmrag.open`. `k`: the number
    of nodes (default: the setting `retrieval.k`). `search_kwargs`: more arguments of
    `KnowledgeBase.search`, for example `{"path": "docs/"}`. The metadata of each node has `path`,
    `lines`, `commit` and `symbol`.

    Raises errors of `vmrag_link.errors`.
    """

    def __init__(
        self,
        repository: str | os.PathLike[str] = ".",
        *,
        k: int | None = None,
        at: str | None = None,
        follow: bool = False,
        search_kwargs: Mapping[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self.kb: KnowledgeBase = vmrag_link.open(repository, at=at, follow=follow)
        self._arguments: dict[str, Any] = {"k": k, **(search_kwargs or {})}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        passages = self.kb.search(query_bundle.query_str, **self._arguments)
        return [NodeWithScore(node=_node(passage), score=passage.score) for passage in passages]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _node(passage: FoundPassage) -> TextNode:
    metadata = list_metadata(passage)
    hidden = [name for name in metadata if name not in _SHOWN]
    return TextNode(
        id_=passage_id(passage),
        text=passage.text,
        metadata=metadata,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=list(metadata),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=passage.name)},
    )
