"""The tools, a module a topic; `registry.TOOLSETS` says which toolset a module belongs to.

A tool checks the rules of its own arguments, calls `vmrag_link.ops`, and puts the report into the
record of `results` that clients know.
"""
