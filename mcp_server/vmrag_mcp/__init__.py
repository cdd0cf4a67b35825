"""The MCP server: tools, resources and prompts for the knowledge of the checked-out code."""
