"""Reproducible retrieval: equal fingerprints and equal queries give equal answers on every machine.

`search` is the entrance: it returns the hits of a query (`query`). `ranker` scores the chunks by
words (`bm25`) and vectors (`vectors`), and `fusion` combines both. `code_ranking` and `records`
then raise code and notes, and `distinct` joins translations and copies.

A *row* is the integer that identifies a chunk of an open index (`index.keywords.pack_row`). The
chunks of a document have consecutive rows. A collection is stored in segments: folders that never
change. Its part in one segment is a *piece*, and the number of a chunk in a piece is its *slot*. A
*piece of code* is something else: a chunk of a file of code, such as a function. Scores are
integers by row.
"""
