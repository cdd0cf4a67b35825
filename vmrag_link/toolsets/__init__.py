"""Our own toolsets, each a leaf: its operations, tools, commands and settings lie in its folder.

Nothing imports them, and none another; `vmrag_link.toolset` has the contract.
"""
