"""The tools that each client of a server has now: what one switches on is its own.

A client of the standard streams is the only one of its server. Over HTTP a client is its session;
one without a session (2026-07-28) says with each request which toolsets it has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

from vmrag_link.errors import AccessDenied
from vmrag_mcp.options import SWITCH, ToolSelection
from vmrag_mcp.registry import ToolInfo

HEADER = "X-MCP-Toolsets"
"""By which a client over HTTP says which toolsets it has; the name that GitHub's server uses."""

PARAMETER = "toolsets"
"""The same in the address."""

START_OPTION = "ask the user to add this to the server's arguments in the client's configuration:"

MOST_SESSIONS = 10_000
"""As many as the SDK keeps. Of a session that timed out nobody tells: the oldest are forgotten."""


class EnabledTools:
    """The tools of a client, which may switch toolsets on until it is gone.

    `toolsets`: those that it named itself; None: those of the server. `lasting` False: nothing that
    it switches on would be there with its next request.
    """

    def __init__(self, selection: ToolSelection, toolsets: str | None = None, *, lasting: bool = True) -> None:
        self._toolsets = toolsets
        self._lasting = lasting
        self._enabled: list[tuple[str, bool]] = []
        self.selection = self._begun(selection)

    def enable_toolset(self, toolset: str, *, agreed: Collection[str] = ()) -> ToolSelection:
        """Switch a toolset on, and return the selection that results.

        Tools that use the network or delete need the user's confirmation, because an agent may have
        read in a stranger's text what to switch on. `agreed`: toolsets that the user confirmed.
        Raises `UsageInvalid` for an unknown name, and `AccessDenied` if no tool can be added.
        """
        confirmed = toolset in agreed
        wider = self.selection.with_toolset(toolset, confirmed=confirmed)
        asks = self.list_unconfirmed(toolset)
        if not self._lasting and (asks or wider.tools != self.selection.tools):
            names = self.selection.start_option(toolset).partition("=")[2]
            raise AccessDenied(
                f"this client has no session, in which {toolset!r} could stay switched on.",
                hint=f"set the header {HEADER}: {names} in the client's configuration, or the address /mcp?{PARAMETER}={names}",
                toolset=toolset,
            )
        if not wider.list_tools_of(toolset) and not asks:
            raise AccessDenied(
                f"this server was started without the tools of the toolset {toolset!r}.",
                hint="ask the user to start it without --read-only and --exclude-tools",
                toolset=toolset,
            )
        if not wider.list_tools_of(toolset):
            raise AccessDenied(
                f"all tools of {toolset!r} use the network or delete, and the user has not confirmed them: {', '.join(asks)}.",
                hint=f"{START_OPTION} {self.selection.start_option(toolset)}",
                toolset=toolset,
                tools=asks,
                enable_with=self.selection.start_option(toolset),
                ask=True,
            )
        self.selection = wider
        self._enabled.append((toolset, confirmed))
        return wider

    def list_unconfirmed(self, toolset: str) -> list[str]:
        """Return the tools of a toolset that are off and need the user's confirmation."""
        return [
            name
            for name, tool in self.selection.with_toolset(toolset).tools.items()
            if tool.needs_consent and not self.selection.has_tool(tool.name)
        ]

    def open_question(self, tool: ToolInfo, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the details of what to ask the user after a call that succeeded; empty if nothing.

        The call has switched on the tools that need no confirmation.
        """
        toolset = arguments.get("toolset")
        tools = self.list_unconfirmed(toolset) if tool.name == SWITCH and isinstance(toolset, str) else []
        return (
            {"code": AccessDenied.code, "details": {"ask": True, "toolset": toolset, "tools": tools}} if tools else {}
        )

    def replace_selection(self, selection: ToolSelection) -> None:
        """Start from another selection; what was chosen and switched on stays so."""
        begun = self._begun(selection).keep_names(self.selection)
        for toolset, confirmed in self._enabled:
            begun = begun.with_toolset(toolset, confirmed=confirmed)
        self.selection = begun

    def _begun(self, selection: ToolSelection) -> ToolSelection:
        return selection if self._toolsets is None else selection.replace_toolsets(self._toolsets)


class ClientTools:
    """The tools of all clients of a server. `everybody`: of one that has no address of its own."""

    def __init__(self, selection: ToolSelection) -> None:
        self.shared = EnabledTools(selection)
        self._selection = selection
        self._sessions: OrderedDict[str, EnabledTools] = OrderedDict()

    def find_enabled(self, session: str | None, toolsets: str | None) -> EnabledTools:
        """Return the tools of a client over HTTP: by its session if the server issued that, else by
        the toolsets that its request names.

        A client that sends another id has no session: others could send the same. Raises
        `UsageInvalid` for an unknown toolset.
        """
        if session is None or session not in self._sessions:
            return EnabledTools(self._selection, toolsets, lasting=False)
        self._sessions.move_to_end(session)
        return self._sessions[session]

    def begin_session(self, session: str, toolsets: str | None) -> None:
        """Remember a session that the server has issued. Raises `UsageInvalid` as `of_request`."""
        self._sessions[session] = EnabledTools(self._selection, toolsets)
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)

    def end_session(self, session: str) -> None:
        self._sessions.pop(session, None)

    def replace_selection(self, selection: ToolSelection) -> None:
        """As `EnabledTools.follow`, for all."""
        self._selection = selection
        for session in (self.shared, *self._sessions.values()):
            session.replace_selection(selection)
