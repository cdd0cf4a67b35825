"""The Python API of a knowledge base. The names in `__all__` are public and follow SemVer.

```python
import vmrag_link as vmrag

with vmrag.open(".") as kb:
    for passage in kb.search("How do sessions expire?", k=3):
        print(passage.place, passage.text)
```

`docs/python.md` describes each method with its results and errors. All errors are classes of
`vmrag_link.errors`, and `hint` names the command that helps. In a coroutine, call a method with
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
