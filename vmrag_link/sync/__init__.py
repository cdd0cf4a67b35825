"""From the pin to documents and index: `binding` (is anything to do?), `target` (what should be),
`build` (its index), `apply` (go there).
"""
