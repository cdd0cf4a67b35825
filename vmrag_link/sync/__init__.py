"""From the pin to documents and index: `current` (is anything to do?), `target` (what should be),
`provide` and `build` (its index), `apply` (go there).
"""
