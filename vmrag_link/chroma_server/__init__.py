"""Collections that a team shares on a Chroma server, over its REST API (v2).

This does not use Chroma's own client. That client takes two seconds to import, and creates Python
objects from what a server sends about a collection's embedding function. This package reads only
names, ids, texts, numbers and vmrag's own metadata.
"""
