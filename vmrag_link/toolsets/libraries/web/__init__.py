"""Pages of the web: fetched within limits, and from public addresses alone.

URLs come from agents, from sitemaps and from knowledge bases of strangers. So every address is
checked before it is connected to, and every answer may be a trap.
"""
