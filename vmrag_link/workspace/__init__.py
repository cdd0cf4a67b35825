"""A git work tree with its view of the knowledge base: what every operation starts from."""

from vmrag_link.workspace.reader import Moment, View
from vmrag_link.workspace.workspace import Workspace

__all__ = ["Moment", "View", "Workspace"]
