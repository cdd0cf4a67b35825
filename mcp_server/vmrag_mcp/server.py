"""The server, on the SDK's low-level `Server`, for both eras of the protocol."""

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
from vmrag_mcp.changes import Subscriptions
from vmrag_mcp.client_tools import ClientTools, EnabledTools
from vmrag_mcp.confirmation import MOST_QUESTIONS, ask_user, earlier_answers, with_confirmation, without_refused
from vmrag_mcp.options import NAME, TITLE, ToolSelection, tool_entries
from vmrag_mcp.process import CallProgress, Report
from vmrag_mcp.prompts import complete_value
from vmrag_mcp.registry import ToolInfo
from vmrag_mcp.session import Call, CallOutcome, Session

READERS = 4
"""Calls that read at the same time; those that write do it one after the other."""

PROGRESS_SECONDS = 0.25

CHOICE = "vmrag.toolsets"
"""In the scope of a request over HTTP: the toolsets that it names, which there are."""

SESSION_HEADER = "mcp-session-id"
_INTRODUCING = ("initialize", "server/discover")

Context = ServerRequestContext[Any, Any]
Called = types.CallToolResult | types.InputRequiredResult

T = TypeVar("T")


class KnowledgeServer:
    """One repository's knowledge, for any number of clients."""

    def __init__(self, session: Session, selection: ToolSelection) -> None:
        self._session = session
        self.clients = ClientTools(selection)
        session.tools = self.clients.shared
        self._reading = anyio.CapacityLimiter(READERS)
        self._writing = anyio.CapacityLimiter(1)
        self._changes = Subscriptions(session.directory, session.source_state)
        self._listen_handler = ListenHandler(self._changes.bus)
        self.sdk: Server[Any] = Server(
            NAME,
            version=__version__,
            title=TITLE,
            instructions=selection.write_instructions(),
            lifespan=self._lifespan,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        self.sdk.middleware.append(self._introduce)

    def build_initialization(self) -> InitializationOptions:
        return self.sdk.create_initialization_options(NotificationOptions(resources_changed=True, tools_changed=True))

    def replace_selection(self, selection: ToolSelection) -> None:
        """Which repository it is for, or what its settings say, was found out after the start."""
        self.clients.replace_selection(selection)
        self._changes.change_directory(self._session.directory)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._changes.poll_changes)
            yield {}
            group.cancel_scope.cancel()

    async def _introduce(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A client that has chosen its toolsets is told of these."""
        result = await call_next(ctx)
        if ctx.method in _INTRODUCING and isinstance(result, dict):
            return {**result, "instructions": self._tools(ctx).selection.write_instructions()}
        return result

    # -- tools

    def _tools(self, context: Context) -> EnabledTools:
        """Those of the client that asks."""
        if context.request is None:
            return self.clients.shared
        session = context.request.headers.get(SESSION_HEADER)
        return self.clients.find_enabled(session, context.request.scope.get(CHOICE))

    async def _list_tools(self, context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=protocol_tools(self._tools(context).selection))

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Called:
        having = self._tools(context)
        before = having.selection
        try:
            tool = before.require_tool(params.name)
        except VmragError as error:
            return _result(CallOutcome(envelope.build_failure(error, before), failed=True))
        arguments: Mapping[str, Any] = params.arguments or {}
        report = _reporter(context)
        agreed = earlier_answers(params)
        agent = _agent(context)
        answer = await self._run(report, tool, arguments, agreed, having, agent=agent)
        for _ in range(MOST_QUESTIONS):
            question = answer.failure or having.open_question(tool, arguments)
            reply = await ask_user(context, params, question, agreed)
            if isinstance(reply, types.InputRequiredResult):
                if having.selection.tools != before.tools:
                    await self.announce_tools(context)
                return reply
            if not reply:
                if rest := without_refused(answer.failure, arguments):
                    answer = await self._run(report, tool, rest, agreed, having, agent=agent)
                break
            agreed |= reply.agreed
            arguments = with_confirmation(tool, arguments, reply)
            refused = answer
            answer = await self._run(report, tool, arguments, agreed, having, agent=agent)
            if answer == refused:  # a yes that does not help is not asked for again
                break
        if having.selection.tools != before.tools:
            await self.announce_tools(context)
        return _text_result(answer) if tool.plain_text else _result(answer)

    async def announce_tools(self, context: Context) -> None:
        """Announce changed tools to the client that called.

        Listeners over HTTP are other clients.
        """
        await context.session.send_tool_list_changed()
        if context.request is None:
            await self._changes.bus.publish(ToolsListChanged())

    async def _run(
        self,
        report: Report,
        tool: ToolInfo,
        arguments: Mapping[str, Any],
        agreed: Mapping[str, bool],
        having: EnabledTools,
        *,
        agent: str,
    ) -> CallOutcome:
        progress = CallProgress(report)
        work = functools.partial(self._session.run_tool, tool, arguments, progress, agreed, having, agent=agent)
        return await self._in_thread(work, progress, self._reading if tool.reads else self._writing)

    async def _in_thread(self, work: Callable[[], T], progress: CallProgress, limiter: anyio.CapacityLimiter) -> T:
        """Work in a thread, which stops where nothing is lost when the client gives the call up."""
        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
        finally:
            progress.cancelled.set()

    # -- resources and prompts

    async def _list_resources(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        try:
            found = await self._read(context, lambda call: list(resources.list_resources(call)), of_files=True)
        except MCPError:  # where there is no knowledge base, its status is still something to read about
            found = resources.select_shown(resources.FIXED, self._tools(context).selection)
        rows = [
            types.Resource(uri=each.uri, name=each.name, description=each.about, mime_type=each.mime) for each in found
        ]
        return types.ListResourcesResult(resources=rows)

    async def _list_templates(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        rows = map(types.ResourceTemplate.model_validate, resources.template_entries(self._tools(context).selection))
        return types.ListResourceTemplatesResult(resource_templates=list(rows))

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        found = await self._read(
            context, lambda call: resources.read_resource(call, uri), of_files=True, uri=uri[: resources.LONGEST_URI]
        )
        content = types.TextResourceContents(
            uri=uri, mime_type=found.mime, text=found.text, _meta={"vmrag/kb": found.kb}
        )
        return types.ReadResourceResult(contents=[content])

    async def _list_prompts(self, context: Context, _: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        rows = map(types.Prompt.model_validate, prompts.prompt_entries(self._tools(context).selection))
        return types.ListPromptsResult(prompts=list(rows))

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        def made(call: Call) -> tuple[str, str]:
            prompt = prompts.find_prompt(params.name, self._tools(context).selection)
            return prompt.about, prompt.text(call, params.arguments or {})

        about, text = await self._read(context, made)
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=about, messages=[message])

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        reference = params.ref.name if isinstance(params.ref, types.PromptReference) else params.ref.uri
        known = (params.context and params.context.arguments) or {}
        argument, typed = params.argument.name, params.argument.value
        values, more = await self._read(
            context, lambda call: complete_value(call, reference, argument, typed, known), of_files=True
        )
        return types.CompleteResult(completion=types.Completion(values=values, has_more=more))

    async def _read(self, context: Context, reader: Callable[[Call], T], *, of_files: bool = False, **data: str) -> T:
        """The reader's result. `of_files`: as `Session.call`.

        Raises `MCPError` for a known error, with the envelope and `data` as its data.
        """
        progress, selection = CallProgress(_reporter(context)), self._tools(context).selection

        def work() -> T:
            with self._session.open_call(progress, of_files=of_files, tools=selection) as call:
                return reader(call)

        try:
            return await self._in_thread(work, progress, self._reading)
        except VmragError as error:
            failure = data | envelope.build_failure(error, selection)
            raise MCPError(types.INVALID_PARAMS, failure["message"], failure) from error

    # -- notifications

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        await self._changes.subscribe(_client(context), str(params.uri), context.session.send_resource_updated)
        return types.EmptyResult()

    async def _unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._changes.unsubscribe(_client(context), str(params.uri))
        return types.EmptyResult()

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        async with self._changes.announce_while_listening(params.notifications.resource_subscriptions or ()):
            return await self._listen_handler(context, params)


def _client(context: Context) -> int:
    """Tells connections of the handshake's era apart: each has sent parameters of its own."""
    return id(context.session.client_params)


def _agent(context: Context) -> str:
    """How the client calls itself, as far as its era of the protocol says that."""
    parameters = context.session.client_params
    return parameters.client_info.name if parameters and parameters.client_info else ""


def protocol_tools(server: ToolSelection) -> list[types.Tool]:
    """The tools as clients of such a server get them."""
    return list(map(types.Tool.model_validate, tool_entries(server)))


def _text_result(answer: CallOutcome) -> types.CallToolResult:
    """Return the answer of an essential tool, which is one block of text."""
    text = answer.content if isinstance(answer.content, str) else envelope.build_failure_text(answer.content)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=_escape_surrogates(text))], is_error=answer.failed
    )


def _result(answer: CallOutcome) -> types.CallToolResult:
    """The same twice: structured for programs, and as text for clients that know no other."""
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
            return {_escape_surrogates(key): _escape_surrogates(each) for key, each in value.items()}
        case list() | tuple():
            return [_escape_surrogates(each) for each in value]
    return value


def _reporter(context: Context) -> Report:
    """Sends a request's progress to the client, from the call's thread, at most each interval, and
    only what is more than before, as the protocol demands: a call may be made twice for a request.
    """
    last, sent = time.monotonic(), -1

    def report(done: int, total: int, description: str) -> None:
        nonlocal last, sent
        now = time.monotonic()
        if done > sent and now - last >= PROGRESS_SECONDS:
            last, sent = now, done
            anyio.from_thread.run(context.session.report_progress, done, total, description)

    return report
