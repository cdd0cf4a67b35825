"""The tools that each client of a server has now: what one switches on is its own.

A client of the standard streams is the only one of its server. Over HTTP a client is its session;
one without a session (2026-07-28) says with each request which toolsets it has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from vmrag_link.errors import AccessDenied
from vmrag_mcp.options import ToolSelection

HEADER = "X-MCP-Toolsets"
"""By which a client over HTTP says which toolsets it has; the name that GitHub's server uses."""

PARAMETER = "toolsets"
"""The same in the address."""

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
        self._enabled: list[str] = []
        self.selection = self._begun(selection)

    def enable(self, toolset: str, *, agreed: Collection[str] = ()) -> ToolSelection:
        """Returns what is there then. `agreed`: toolsets to which the person said yes.

        Raises `UsageInvalid` for a name that is none, and `AccessDenied` where tools would come
        that use the network or discard something, and the person did not agree: an agent may have
        read in a stranger's text what to switch on.
        """
        wider = self.selection.with_toolset(toolset)
        names = ",".join(wider.toolsets)
        if not self._lasting and wider.tools != self.selection.tools:
            raise AccessDenied(
                f"This client has no session in which {toolset!r} could stay switched on.",
                hint=f"Its configuration says which toolsets it has: the header {HEADER}: {names}, or /mcp?{PARAMETER}={names}",
                toolset=toolset,
            )
        asks = [name for name, each in wider.tools.items() if name not in self.selection.tools and each.needs_consent]
        if asks and toolset not in agreed:
            flag = f"--toolsets={names}"
            raise AccessDenied(
                f"With the toolset {toolset!r} come tools that use the network or delete, which only the user may switch on: "
                f"{', '.join(asks)}.",
                hint=f"Start the server with {flag}",
                toolset=toolset,
                tools=asks,
                enable_with=flag,
                ask=True,
            )
        self.selection = wider
        self._enabled.append(toolset)
        return self.selection

    def follow(self, selection: ToolSelection) -> None:
        """Start from another selection; what was chosen and switched on stays so."""
        found = self._begun(selection)
        for toolset in self._enabled:
            found = found.with_toolset(toolset)
        self.selection = found

    def _begun(self, selection: ToolSelection) -> ToolSelection:
        return selection if self._toolsets is None else selection.of_toolsets(self._toolsets)


class ClientTools:
    """The tools of all clients of a server. `everybody`: of one that has no address of its own."""

    def __init__(self, selection: ToolSelection) -> None:
        self.everybody = EnabledTools(selection)
        self._selection = selection
        self._sessions: OrderedDict[str, EnabledTools] = OrderedDict()

    def of_request(self, session: str | None, toolsets: str | None) -> EnabledTools:
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

    def end(self, session: str) -> None:
        self._sessions.pop(session, None)

    def follow(self, selection: ToolSelection) -> None:
        """As `EnabledTools.follow`, for all."""
        self._selection = selection
        for each in (self.everybody, *self._sessions.values()):
            each.follow(selection)
