"""The tools of each client of a server. Toolsets that a client enables are enabled only for it.

A server on the standard streams has one client. Over HTTP, each session is a client. A client
without a session (2026-07-28) names its toolsets in each request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

from vmrag_link.errors import AccessDenied
from vmrag_mcp.options import SWITCH, ToolSelection
from vmrag_mcp.registry import ToolInfo

TOOLSETS_HEADER = "X-MCP-Toolsets"
"""Header that names the toolsets of a client over HTTP. GitHub's server uses the same name."""

TOOLSETS_PARAMETER = "toolsets"
"""Parameter of the address with the same meaning."""

START_OPTION = "ask the user to add '{}' to the server's arguments in the client's configuration"

MAX_SESSIONS = 10_000
"""Maximum number of sessions, as in the SDK. The server forgets the oldest, because no one reports
that a session timed out.
"""


class EnabledTools:
    """The tools of a client, which can enable toolsets while it is connected.

    `toolsets` are the toolsets that the client named; None: the toolsets of the server. With
    `lasting=False`, the client's next request would not have the toolsets that it enables.
    """

    def __init__(self, selection: ToolSelection, toolsets: str | None = None, *, lasting: bool = True) -> None:
        self._toolsets = toolsets
        self._lasting = lasting
        self._enabled: list[tuple[str, bool]] = []
        """The enabled toolsets, each with whether the user confirmed it."""
        self.selection = self._start_from(selection)

    def enable_toolset(self, toolset: str, *, agreed: Collection[str] = ()) -> ToolSelection:
        """Enable a toolset, and return the new selection.

        Tools that use the network or delete need the user's confirmation, because an agent can have
        read the instruction in an untrusted text. `agreed` has the toolsets that the user
        confirmed. Raises `UsageInvalid` for an unknown name, and `AccessDenied` if no tool can be
        added.
        """
        confirmed = toolset in agreed
        wider = self.selection.with_toolset(toolset, confirmed=confirmed)
        unconfirmed = self.list_unconfirmed(toolset)
        if not self._lasting and (unconfirmed or wider.tools != self.selection.tools):
            names = self.selection.start_option(toolset).partition("=")[2]
            raise AccessDenied(
                f"this client has no session, in which {toolset!r} could stay switched on.",
                hint=f"set the header '{TOOLSETS_HEADER}: {names}' in the client's configuration, or use the address "
                f"/mcp?{TOOLSETS_PARAMETER}={names}",
                toolset=toolset,
            )
        if not wider.list_tools_of(toolset) and not unconfirmed:
            raise AccessDenied(
                f"this server was started without the tools of the toolset {toolset!r}.",
                hint="ask the user to start it without --read-only and --exclude-tools",
                toolset=toolset,
            )
        if not wider.list_tools_of(toolset):
            raise AccessDenied(
                f"all tools of {toolset!r} use the network or delete, and the user has not confirmed them: {', '.join(unconfirmed)}.",
                hint=START_OPTION.format(self.selection.start_option(toolset)),
                toolset=toolset,
                tools=unconfirmed,
                enable_with=self.selection.start_option(toolset),
                ask=True,
            )
        self.selection = wider
        self._enabled.append((toolset, confirmed))
        return wider

    def list_unconfirmed(self, toolset: str) -> list[str]:
        """Return the disabled tools of a toolset that need the user's confirmation."""
        return [
            name
            for name, tool in self.selection.with_toolset(toolset).tools.items()
            if tool.needs_consent and not self.selection.has_tool(tool.name)
        ]

    def open_question(self, tool: ToolInfo, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the details of the question to the user after a successful call; empty if there is
        none.

        The call has already enabled the tools that need no confirmation.
        """
        toolset = arguments.get("toolset")
        tools = self.list_unconfirmed(toolset) if tool.name == SWITCH and isinstance(toolset, str) else []
        if not tools:
            return {}
        return {"code": AccessDenied.code, "details": {"ask": True, "toolset": toolset, "tools": tools}}

    def replace_selection(self, selection: ToolSelection) -> None:
        """Use another selection of the server, and keep the toolsets that the client named and
        enabled.
        """
        started = self._start_from(selection).keep_names(self.selection)
        for toolset, confirmed in self._enabled:
            started = started.with_toolset(toolset, confirmed=confirmed)
        self.selection = started

    def _start_from(self, selection: ToolSelection) -> ToolSelection:
        return selection if self._toolsets is None else selection.replace_toolsets(self._toolsets)


class ClientTools:
    """The tools of all clients of a server.

    `shared` are the tools of clients that the server cannot tell apart.
    """

    def __init__(self, selection: ToolSelection) -> None:
        self.shared = EnabledTools(selection)
        self._selection = selection
        self._sessions: OrderedDict[str, EnabledTools] = OrderedDict()

    def find_enabled(self, session: str | None, toolsets: str | None) -> EnabledTools:
        """Return the tools of a client over HTTP.

        The server uses the session if it has issued it, or else the toolsets of the request. Other
        session ids are ignored, because several clients can send the same id. Raises `UsageInvalid`
        for an unknown toolset.
        """
        if session is None or session not in self._sessions:
            return EnabledTools(self._selection, toolsets, lasting=False)
        self._sessions.move_to_end(session)
        return self._sessions[session]

    def begin_session(self, session: str, toolsets: str | None) -> None:
        """Remember a session that the server has issued.

        Raises `UsageInvalid` for an unknown toolset.
        """
        self._sessions[session] = EnabledTools(self._selection, toolsets)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def end_session(self, session: str) -> None:
        self._sessions.pop(session, None)

    def replace_selection(self, selection: ToolSelection) -> None:
        """Use another selection of the server for all clients
        (`EnabledTools.replace_selection`).
        """
        self._selection = selection
        for session in (self.shared, *self._sessions.values()):
            session.replace_selection(selection)
