"""Start `vmrag-mcp`, with the arguments of the manifest."""

from vmrag_link.cli.mcp import main

main()
