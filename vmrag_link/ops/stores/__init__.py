"""The collections that toolsets keep for themselves."""
