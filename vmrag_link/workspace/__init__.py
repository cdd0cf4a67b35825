"""A git work tree with its view of the knowledge base: what every operation starts from."""

from vmrag_link.workspace.local_store import LocalStore
from vmrag_link.workspace.reader import Moment, View
from vmrag_link.workspace.workspace import Workspace

DocumentStore = Workspace | LocalStore
"""Where documents are read and written: as the pin says, or on this machine alone."""

__all__ = ["DocumentStore", "LocalStore", "Moment", "View", "Workspace"]
