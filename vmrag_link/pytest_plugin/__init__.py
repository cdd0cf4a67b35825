"""The pytest plugin: the fixture `kb`, and golden queries as tests.

Each run of pytest in an environment with vmrag-link loads `plugin`, also for projects without a
knowledge base. So large modules are only imported when a test needs them.
"""

from vmrag_link.pytest_plugin.knowledge import Kb

__all__ = ["Kb"]
