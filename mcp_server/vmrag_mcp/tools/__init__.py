"""The tools, a module a topic; `registry.TOOLSETS` says which toolset a module belongs to.

A tool checks what only it asks for, calls `vmrag_link.ops`, and puts the report into the shape that
clients know.
"""
