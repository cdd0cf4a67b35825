"""What tests of a project ask of the knowledge that its code pins: `kb`, and golden queries.

Every run of pytest where vmrag-link is installed loads `plugin`, also of projects without
knowledge: so nothing of weight is imported before a test asks for something.
"""

from vmrag_link.pytest_plugin.knowledge import Kb

__all__ = ["Kb"]
