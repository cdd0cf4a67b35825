"""The server, on the SDK's low-level `Server`, for both eras of the protocol.

In the *handshake era*, a client connects once, and the server can send requests to it. In the
*modern era* (2026-07-28), each request of a client is complete, and the server answers nothing
else. A handler here finds the tools of the client that sent the request, and runs the work of
`Session` in a thread.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
import mcp_types as types
import msgspec
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

from vmrag_link import __version__
from vmrag_link.errors import VmragError
from vmrag_mcp import envelope, prompts, resources
from vmrag_mcp.call import Call
from vmrag_mcp.call_progress import CallProgress, Report
from vmrag_mcp.changes import Subscriptions
from vmrag_mcp.client_tools import ClientTools, EnabledTools
from vmrag_mcp.completion import complete_value
from vmrag_mcp.confirmation import MAX_QUESTIONS, ask_user, earlier_answers, with_confirmation, without_refused
from vmrag_mcp.options import SERVER_NAME, SERVER_TITLE, ToolSelection, build_tool_entries
from vmrag_mcp.registry import ToolInfo
from vmrag_mcp.session import CallOutcome, Session

READERS = 4
"""Number of calls that read at the same time. Calls that write run one after the other."""

PROGRESS_SECONDS = 0.25

TOOLSETS_KEY = "vmrag.toolsets"
"""Key in the scope of an HTTP request: the valid toolsets that the request names."""

SESSION_HEADER = "mcp-session-id"
_INTRODUCING = ("initialize", "server/discover")

Context = ServerRequestContext[Any, Any]
Called = types.CallToolResult | types.InputRequiredResult

T = TypeVar("T")


class KnowledgeServer:
    """An MCP server for the knowledge of one repository, with any number of clients."""

    def __init__(self, session: Session, selection: ToolSelection) -> None:
        self._session = session
        self.clients = ClientTools(selection)
        self._reading = anyio.CapacityLimiter(READERS)
        self._writing = anyio.CapacityLimiter(1)
        self._changes = Subscriptions(session.directory, session.source_state)
        self._listen_handler = ListenHandler(self._changes.bus)
        self.sdk: Server[Any] = Server(
            SERVER_NAME,
            version=__version__,
            title=SERVER_TITLE,
            instructions=selection.write_instructions(),
            lifespan=self._lifespan,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe_resource,
            on_unsubscribe_resource=self._unsubscribe_resource,
            on_subscriptions_listen=self._listen_to_changes,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete_argument,
        )
        self.sdk.middleware.append(self._add_instructions)

    def build_initialization(self) -> InitializationOptions:
        return self.sdk.create_initialization_options(NotificationOptions(resources_changed=True, tools_changed=True))

    def replace_selection(self, selection: ToolSelection) -> None:
        """Use another selection of tools, and watch the directory of the session.

        Call it when the first call has found the repository or its settings.
        """
        self.clients.replace_selection(selection)
        self._changes.change_directory(self._session.directory)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._changes.poll_changes)
            yield {}
            group.cancel_scope.cancel()

    async def _add_instructions(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Add instructions about the client's own toolsets to the answer that introduces the
        server.
        """
        result = await call_next(ctx)
        if ctx.method in _INTRODUCING and isinstance(result, dict):
            return {**result, "instructions": self._find_enabled(ctx).selection.write_instructions()}
        return result

    # -- tools

    def _find_enabled(self, context: Context) -> EnabledTools:
        """Return the tools of the client that sent the request."""
        if context.request is None:
            return self.clients.shared
        session = context.request.headers.get(SESSION_HEADER)
        return self.clients.find_enabled(session, context.request.scope.get(TOOLSETS_KEY))

    async def _list_tools(self, context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=protocol_tools(self._find_enabled(context).selection))

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Called:
        enabled = self._find_enabled(context)
        selection = enabled.selection
        try:
            tool = selection.require_tool(params.name)
        except VmragError as error:
            return _structured_result(CallOutcome(envelope.build_failure(error, selection), failed=True))
        outcome = await self._run_with_consent(context, params, tool, enabled)
        if enabled.selection.tools != selection.tools:
            await self.announce_tools(context)
        if isinstance(outcome, types.InputRequiredResult):
            return outcome
        return _text_result(outcome) if tool.plain_text else _structured_result(outcome)

    async def _run_with_consent(
        self, context: Context, params: types.CallToolRequestParams, tool: ToolInfo, enabled: EnabledTools
    ) -> CallOutcome | types.InputRequiredResult:
        """Run a tool, ask the user for each consent that it lacks, and run it again.

        In the modern era, the result can be a question. The client then calls again.
        """
        arguments: Mapping[str, Any] = params.arguments or {}
        agreed = earlier_answers(params)
        progress_report = _make_reporter(context)
        agent = _agent_name(context)

        async def run_tool() -> CallOutcome:
            progress = CallProgress(progress_report)
            work = functools.partial(self._session.run_tool, tool, arguments, progress, agreed, enabled, agent=agent)
            return await self._run_in_thread(work, progress, self._reading if tool.reads else self._writing)

        outcome = await run_tool()
        for _ in range(MAX_QUESTIONS):
            question = outcome.failure or enabled.open_question(tool, arguments)
            reply = await ask_user(context, params, question, agreed)
            if isinstance(reply, types.InputRequiredResult):
                return reply
            if not reply:
                if rest := without_refused(outcome.failure, arguments):
                    arguments = rest
                    outcome = await run_tool()
                break
            agreed |= reply.agreed
            arguments = with_confirmation(tool, arguments, reply)
            refused = outcome
            outcome = await run_tool()
            if outcome == refused:  # the confirmation did not help, so do not ask again
                break
        return outcome

    async def announce_tools(self, context: Context) -> None:
        """Announce changed tools to the client that called.

        Listeners over HTTP are other clients.
        """
        await context.session.send_tool_list_changed()
        if context.request is None:
            await self._changes.bus.publish(ToolsListChanged())

    async def _run_in_thread(self, work: Callable[[], T], progress: CallProgress, limiter: anyio.CapacityLimiter) -> T:
        """Run `work` in a thread.

        If the client cancels the call, the work stops at its next safe point.
        """
        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
        finally:
            progress.cancelled.set()

    # -- resources and prompts

    async def _list_resources(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        try:
            listed = await self._run_reader(
                context, lambda call: list(resources.list_resources(call)), reads_files=True
            )
        except MCPError:  # without a knowledge base, clients can still read its status
            listed = resources.select_shown(resources.FIXED, self._find_enabled(context).selection)
        rows = [
            types.Resource(uri=resource.uri, name=resource.name, description=resource.about, mime_type=resource.mime)
            for resource in listed
        ]
        return types.ListResourcesResult(resources=rows)

    async def _list_templates(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        rows = map(
            types.ResourceTemplate.model_validate, resources.template_entries(self._find_enabled(context).selection)
        )
        return types.ListResourceTemplatesResult(resource_templates=list(rows))

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        content = await self._run_reader(
            context,
            lambda call: resources.read_resource(call, uri),
            reads_files=True,
            uri=uri[: resources.MAX_URI_CHARACTERS],
        )
        contents = types.TextResourceContents(
            uri=uri, mime_type=content.mime, text=content.text, _meta={"vmrag/kb": content.kb}
        )
        return types.ReadResourceResult(contents=[contents])

    async def _list_prompts(self, context: Context, _: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        rows = map(types.Prompt.model_validate, prompts.prompt_entries(self._find_enabled(context).selection))
        return types.ListPromptsResult(prompts=list(rows))

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        def build_prompt(call: Call) -> tuple[str, str]:
            prompt = prompts.find_prompt(params.name, self._find_enabled(context).selection)
            return prompt.about, prompt.text(call, params.arguments or {})

        about, text = await self._run_reader(context, build_prompt)
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=about, messages=[message])

    async def _complete_argument(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        reference = params.ref.name if isinstance(params.ref, types.PromptReference) else params.ref.uri
        values_by_name = (params.context and params.context.arguments) or {}
        argument, typed = params.argument.name, params.argument.value
        values, more = await self._run_reader(
            context, lambda call: complete_value(call, reference, argument, typed, values_by_name), reads_files=True
        )
        return types.CompleteResult(completion=types.Completion(values=values, has_more=more))

    async def _run_reader(
        self, context: Context, reader: Callable[[Call], T], *, reads_files: bool = False, **data: str
    ) -> T:
        """Return the result of `reader`, which runs in a thread.

        With `reads_files`, files of sources are enough if there is no knowledge base. Raises
        `MCPError` for a known error, with the error's envelope and `data`.
        """
        progress = CallProgress(_make_reporter(context))
        selection = self._find_enabled(context).selection

        def work() -> T:
            with self._session.open_call(progress, reads_files=reads_files, tools=selection) as call:
                return reader(call)

        try:
            return await self._run_in_thread(work, progress, self._reading)
        except VmragError as error:
            failure = data | envelope.build_failure(error, selection)
            raise MCPError(types.INVALID_PARAMS, failure["message"], failure) from error

    # -- notifications

    async def _subscribe_resource(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        await self._changes.subscribe(_connection_id(context), str(params.uri), context.session.send_resource_updated)
        return types.EmptyResult()

    async def _unsubscribe_resource(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._changes.unsubscribe(_connection_id(context), str(params.uri))
        return types.EmptyResult()

    async def _listen_to_changes(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        async with self._changes.announce_while_listening(params.notifications.resource_subscriptions or ()):
            return await self._listen_handler(context, params)


def _connection_id(context: Context) -> int:
    """Return a number that identifies a connection of the handshake era.

    Each connection has its own object of client parameters.
    """
    return id(context.session.client_params)


def _agent_name(context: Context) -> str:
    """Return the client's name; empty if its era of the protocol does not send one."""
    parameters = context.session.client_params
    return parameters.client_info.name if parameters and parameters.client_info else ""


def protocol_tools(server: ToolSelection) -> list[types.Tool]:
    """Return the tools in the form that clients receive."""
    return list(map(types.Tool.model_validate, build_tool_entries(server)))


def _text_result(answer: CallOutcome) -> types.CallToolResult:
    """Return the answer of an essential tool as one block of text."""
    text = answer.content if isinstance(answer.content, str) else envelope.build_failure_text(answer.content)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=_escape_surrogates(text))], is_error=answer.failed
    )


def _structured_result(answer: CallOutcome) -> types.CallToolResult:
    """Return the answer twice: as structured content, and as text for clients that read
    only text.
    """
    fields: Any = answer.content
    try:
        text = msgspec.json.encode(fields).decode()
    except UnicodeEncodeError:  # a path or a branch that is not UTF-8
        fields = _escape_surrogates(fields)
        text = msgspec.json.encode(fields).decode()
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=fields, is_error=answer.failed
    )


def _escape_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_escape_surrogates(key): _escape_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_escape_surrogates(item) for item in value]
    return value


def _make_reporter(context: Context) -> Report:
    """Return a function that sends the progress of a request to the client.

    The call's thread runs it. It sends at most one notification per interval, and only if more
    steps are done than before. The protocol demands that, and a call can run twice for one request.
    """
    last_time = time.monotonic()
    last_steps = -1

    def send_progress(steps: int, total: int, description: str) -> None:
        nonlocal last_time, last_steps
        now = time.monotonic()
        if steps > last_steps and now - last_time >= PROGRESS_SECONDS:
            last_time = now
            last_steps = steps
            anyio.from_thread.run(context.session.report_progress, steps, total, description)

    return send_progress
