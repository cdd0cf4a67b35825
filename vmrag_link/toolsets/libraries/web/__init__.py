"""Web pages, fetched within limits and only from public addresses.

URLs come from agents, from sitemaps and from other people's knowledge bases. vmrag therefore checks
every address before it connects, and treats every answer as untrusted.
"""
