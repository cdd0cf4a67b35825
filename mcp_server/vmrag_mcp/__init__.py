"""The MCP server: tools, resources and prompts over the knowledge of the code that is checked out."""
