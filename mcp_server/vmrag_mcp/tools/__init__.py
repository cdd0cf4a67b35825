"""The tools, with one module for each topic. `registry.CORE` lists the modules of each toolset.

A tool checks its own arguments, calls `vmrag_link.ops`, and puts the report into the record of
`results` that clients know.
"""
