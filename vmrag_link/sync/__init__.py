"""From the pin to documents and index: resolve (what should be), plan (what differs), build (the
index).
"""
