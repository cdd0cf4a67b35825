"""This server in the configuration of MCP clients: put there, and taken out again."""
