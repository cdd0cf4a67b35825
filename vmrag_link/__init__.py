"""One commit for code and knowledge: a knowledge base and its vector index at the revision that the
code pins.
"""

__version__ = "0.2.0"
