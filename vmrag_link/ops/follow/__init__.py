"""The work tree follows its pin before anything reads: recovery after a kill, fetching what is
missing, syncing.
"""
