"""The embedded engine: doltlite, in process."""
