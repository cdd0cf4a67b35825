"""Documents of a project that are files of the work tree, and answers from them."""

from vmrag_link.toolset import Toolset, ToolsetCommand

TOOLSET = Toolset(
    "compounding",
    "project documents",
    __name__,
    tools=(".tools",),
    commands={
        "ask": ToolsetCommand("Search", "Answer a question from the documents, with citations.", ".ask_command:command")
    },
    settings={"llm": ".chat_model:LlmSettings"},
)
