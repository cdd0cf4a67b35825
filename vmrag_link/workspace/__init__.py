"""A git work tree with its view of the knowledge base: what every operation starts from."""

from typing import TYPE_CHECKING, TypeAlias

from vmrag_link.workspace.workspace import Workspace

if TYPE_CHECKING:
    from vmrag_link.workspace.local_store import LocalStore
    from vmrag_link.workspace.reader import Moment, View
    from vmrag_link.workspace.source_tree import SourceStore

    DocumentStore: TypeAlias = Workspace | LocalStore
    """Where documents are read and written: as the pin says, or on this machine alone."""

    ReadableStore: TypeAlias = DocumentStore | SourceStore
    """Where documents are read: there, or in files of the tree."""

__all__ = ["DocumentStore", "LocalStore", "Moment", "ReadableStore", "SourceStore", "View", "Workspace"]
