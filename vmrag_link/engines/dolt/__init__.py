"""The engine on Dolt itself: its program, or a running sql-server."""
