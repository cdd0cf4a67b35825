"""One module an operation. The command line, the MCP server and the Action call these and render
their reports.
"""
