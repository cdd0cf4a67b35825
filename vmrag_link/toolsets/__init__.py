"""vmrag's own toolsets. The operations, tools, commands and settings of each one are in its folder.

No other module imports a toolset, and no toolset imports another one. `vmrag_link.toolset` has the
contract.
"""
