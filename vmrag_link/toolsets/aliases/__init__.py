"""Other names and shorter forms of the core's tools."""

from vmrag_link.toolset import Toolset

CHROMA_VARIANTS = Toolset(
    "chroma_variants", "one-document and one-filter variants of the chroma tools", __name__, tools=(".chroma_variants",)
)
VCS_ALIASES = Toolset(
    "vcs_aliases", "shorter names for commits, branches, status and log", __name__, tools=(".vcs_aliases",)
)
