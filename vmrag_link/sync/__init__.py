"""Bring documents and index to the pin: `binding` (the present state), `target` (the wanted
state), `build` (its index), `apply` (the switch to it).
"""
