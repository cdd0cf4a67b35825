"""The search index. It is derived from the knowledge base, so it can be deleted and rebuilt at any
time.
"""
