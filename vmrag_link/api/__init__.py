"""The Python API of a knowledge base, stable by SemVer: what is public is listed here.

```python
import vmrag_link as vmrag

with vmrag.open(".") as kb:
    for passage in kb.search("How do sessions expire?", k=3):
        print(passage.place, passage.text)
```

`docs/python.md` describes each method with its results and errors. An error is a class of
`vmrag_link.errors`, whose `hint` names the command that helps. A coroutine calls a method with
`asyncio.to_thread`.
"""

from vmrag_link.api.knowledge_base import KnowledgeBase
from vmrag_link.api.knowledge_base import open_knowledge_base as open  # noqa: A004  `vmrag.open`, as in other libraries
from vmrag_link.api.results import (
    AnswerPosition,
    ChangedDocument,
    CommittedRevision,
    DiffResults,
    DocumentEntry,
    DocumentText,
    DocumentVersion,
    FileCount,
    FoundPassage,
    LineMatches,
    MatchingLine,
    RemovedDocuments,
    SearchResults,
    WrittenDocument,
)

__all__ = [
    "AnswerPosition",
    "ChangedDocument",
    "CommittedRevision",
    "DiffResults",
    "DocumentEntry",
    "DocumentText",
    "DocumentVersion",
    "FileCount",
    "FoundPassage",
    "KnowledgeBase",
    "LineMatches",
    "MatchingLine",
    "RemovedDocuments",
    "SearchResults",
    "WrittenDocument",
    "open",
]
