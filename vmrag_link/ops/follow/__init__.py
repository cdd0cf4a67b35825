"""The work tree follows its pin: recovery after a kill, fetching what is missing, syncing, before
anything reads.
"""
