"""A git work tree with its view of the knowledge base: the input of every operation."""

from typing import TYPE_CHECKING, TypeAlias

from vmrag_link.workspace.workspace import Workspace

if TYPE_CHECKING:
    from vmrag_link.workspace.local_store import LocalStore
    from vmrag_link.workspace.reader import Moment, View
    from vmrag_link.workspace.source_tree import SourceStore

    DocumentStore: TypeAlias = Workspace | LocalStore
    """Store in which documents are read and written: at the pin, or on this machine only."""

    ReadableStore: TypeAlias = DocumentStore | SourceStore
    """Store from which documents are read: one of those, or the files of the tree."""

__all__ = ["DocumentStore", "LocalStore", "Moment", "ReadableStore", "SourceStore", "View", "Workspace"]
