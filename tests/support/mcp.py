"""The MCP server as tests use it: its tools without a protocol (`Tools`), or through the official
client (`connected`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.terminal import Project
from vmrag_mcp.call import NO_CONSENT, Behaviour
from vmrag_mcp.call_progress import CallProgress
from vmrag_mcp.client_tools import EnabledTools
from vmrag_mcp.options import ToolChoice, select_tools
from vmrag_mcp.session import Session

ALL = ToolChoice(toolsets="all")


class ShownText(NamedTuple):
    """A text of a document, as the answer of an essential tool shows it."""

    place: str
    about: list[str]
    """The rest of the head line: a heading or symbol, and states of the file."""
    text: str


class TextAnswer(str):
    """The answer of an essential tool."""

    __slots__ = ()

    @property
    def message(self) -> str:
        """The last line."""
        return self.splitlines()[-1]

    @property
    def warnings(self) -> list[str]:
        return [line.removeprefix("warning: ") for line in self.tail if line.startswith("warning: ")]

    @property
    def tail(self) -> list[str]:
        """The lines below the texts: warnings, and the message."""
        lines = self.splitlines()
        return lines[len(lines) - lines[::-1].index("") :] if "" in lines else lines

    @property
    def body(self) -> list[str]:
        """The lines above the warnings and the message."""
        lines = self.splitlines()
        return lines[: -len(self.tail) - 1] if len(lines) > len(self.tail) else []

    @property
    def shown(self) -> list[ShownText]:
        """The texts of documents, with their places."""
        shown: list[ShownText] = []
        fence, head, text = "", "", []
        for line in self.split("\n"):
            if fence and line == fence:
                place, *about = head.split(" · ")
                shown.append(ShownText(place, about, "\n".join(text)))
                fence = ""
            elif fence:
                text.append(line)
            elif line and set(line) == {"`"}:
                fence, text = line, []
            else:
                head = line
        return shown

    @property
    def switched_on(self) -> list[str]:
        """The tools that `enable_toolset` lists as on."""
        return [line.removeprefix("on: ").partition("(")[0] for line in self.body if line.startswith("on: ")]

    @property
    def text(self) -> str:
        """The only text of a document."""
        [only] = self.shown
        return only.text

    @property
    def places(self) -> list[str]:
        """The first part of each line that is not text of a document."""
        texts = [shown.place for shown in self.shown]
        return texts or [line.split(" · ")[0] for line in self.body]


def read_text_answer(result: Any) -> TextAnswer:
    """The text of what the official client returns for a call that succeeded."""
    assert not result.is_error, result
    (block,) = result.content
    return TextAnswer(block.text)


class Tools:
    """Calls run as the server runs them, in this thread. Every answer is checked for what all
    answers have in common.
    """

    def __init__(
        self,
        directory: Path,
        *,
        behaviour: Behaviour | None = None,
        chosen: ToolChoice = ALL,
        agreed: Mapping[str, bool] = NO_CONSENT,
    ) -> None:
        self.agreed = agreed
        self.session = Session(directory, behaviour or Behaviour())
        self.enabled = EnabledTools(select_tools(chosen))

    def __call__(self, name: str, /, **arguments: Any) -> Any:
        """The result of a call that succeeds; a `TextAnswer` if the tool is an essential one."""
        result, failed = self.run(name, arguments)
        assert not failed, result
        if isinstance(result, str):
            assert TextAnswer(result).message
            return TextAnswer(result)
        assert result["success"] is True
        assert result["message"]
        where = {"worktree", "git_head"} & result["kb"].keys()
        unversioned = {"versioned": False} if "versioned" in result["kb"] else {}  # of this machine alone
        outdated, files = {"copies"} & result["kb"].keys(), {"sources"} & result["kb"].keys()
        assert {"branch", "commit", "dirty", "in_sync", *unversioned} == result["kb"].keys() - where - outdated - files
        assert bool(outdated) == any(warning["code"] == "STORED_COPIES" for warning in result.get("warnings", ()))
        assert result["kb"].items() >= unversioned.items()
        of_status = "sync_state" in result or name == "status"
        assert len(where) == (0 if result["kb"]["in_sync"] and not of_status else 2)
        assert result.get("warnings") != []
        return result

    def error(self, code: str, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The envelope of a call that fails with this code."""
        result, failed = self.run(name, arguments)
        assert failed, result
        assert (result["error"], result["code"], result["success"], result["status"]) == (code, code, False, "error"), (
            result
        )
        assert result["message"]
        assert isinstance(result["details"], dict)
        assert result["suggestions"]
        return result

    def run(self, name: str, arguments: dict[str, Any]) -> tuple[Any, bool]:
        tool = self.enabled.selection.require_tool(name)
        return self.session.run_tool(tool, arguments, CallProgress(), self.agreed, self.enabled)


class Yes(dict[str, bool]):
    """Confirm each address, and whether to remember it.

    Folders must still be below a root.
    """

    def __init__(self, project: Project, *, remember: bool = False) -> None:
        self._remember = remember
        project.git("config", "vmrag.fileRoot", "/")

    def __contains__(self, _: object) -> bool:
        return True

    def get(self, _: object, __: object = None) -> bool:  # type: ignore[override]
        return self._remember


def warned(result: Mapping[str, Any]) -> set[str]:
    """The codes of a result's warnings."""
    return {warning["code"] for warning in result.get("warnings", ())}


@contextlib.contextmanager
def connected(server: Any, *, mode: str = "auto") -> Iterator[Client]:
    """Connect the official client to a `KnowledgeServer` in this process, for a synchronous test.

    Modes have the client's names.
    """
    from anyio.from_thread import start_blocking_portal
    from mcp.client import Client as Official

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Official(server.sdk, mode=mode)) as client,
    ):
        yield Client(portal, client)


class Client:
    """`client.call_tool(...)` and the like, without `await`."""

    def __init__(self, portal: Any, official: Any) -> None:
        self._portal, self.official = portal, official

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.official, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            async def run() -> Any:
                return await method(*arguments, **keywords)

            return self._portal.call(run)

        return call
