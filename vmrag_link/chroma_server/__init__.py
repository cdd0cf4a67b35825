"""Collections that a team shares on a Chroma server, over its REST API (v2).

Chroma's own client is not used: it takes two seconds to import, and makes Python objects of what a
server says of a collection's embedding function. Of an answer, only names, ids, texts, numbers and
our own metadata are read here.
"""
