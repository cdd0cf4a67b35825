"""Other names and shorter forms of the core tools."""

from vmrag_link.toolset import Toolset

CHROMA_VARIANTS = Toolset("chroma_variants", "simpler chroma tools", __name__, tools=(".chroma_variants",))
VCS_ALIASES = Toolset("vcs_aliases", "short dolt names", __name__, tools=(".vcs_aliases",))
