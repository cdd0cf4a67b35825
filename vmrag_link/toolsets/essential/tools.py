"""The tools that find and show texts: search, read and grep.

Each result is text for a model: a head line with the path and lines, then the passage. The message
counts the results and names the next call.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from vmrag_link import terminal_text
from vmrag_link.errors import (
    CollectionMissing,
    DocumentMissing,
    NotInitialized,
    PinMissing,
    UsageInvalid,
    closest,
    first_of,
    plural,
)
from vmrag_link.models import LONGEST_QUERY
from vmrag_link.ops.query.relations import RELATIONS, RelatedCode, Relation
from vmrag_link.ops.query.symbols import SymbolDefinition
from vmrag_link.retrieval.query import MIN_BUDGET_TOKENS, group_by_kind
from vmrag_link.retrieval.weakness import WEAK_NOTE
from vmrag_link.toolsets.essential import folders, pages, passages, texts
from vmrag_link.toolsets.essential.passages import NarrowedQuestion
from vmrag_link.toolsets.essential.texts import Text, TextLines
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.packing import PackedPassage, also_in_line
from vmrag_link.workspace.answers.query import require_query
from vmrag_link.workspace.documents import file_texts
from vmrag_link.workspace.documents.grep import (
    GrepOptions,
    MatchedLine,
    Pattern,
    SearchedFiles,
    count_without_case,
    grep_texts,
)
from vmrag_link.workspace.follow.provenance import INCOMPLETE, untracked_notice
from vmrag_link.workspace.history import named_places
from vmrag_mcp.arguments import CollectionName, Given, Ref
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import TextResult, fence_text

MAX_LINE_CHARS = 300
"""Maximum number of characters of a matching line."""

Path = Annotated[str, Given("path, part of it, or glob such as *.md")]

MAX_LISTED_DEFINITIONS = 20
MAX_READ_DEFINITIONS = 3


@tool(
    "R", reads_files=True, includes=("chroma_query_documents",), same_effect=("chroma_query_documents",), short="search"
)
def search_documents(
    call: Call,
    *,
    query: Annotated[str, Given("question or words", longest=LONGEST_QUERY)] = "",
    path: Path = "",
    lang: Annotated[str, Given("such as python")] = "",
    symbol: Annotated[str, Given("such as Session.refresh or *Error")] = "",
    kind: Annotated[str, Given("kind such as class")] = "",
    relation: Annotated[str, Given("callers or callees")] = "",
    collection: CollectionName = "",
    max_tokens: Annotated[int, Given("size of the answer", low=MIN_BUDGET_TOKENS, high=20_000, clamped=True)] = 2000,
    ref: Ref = "",
) -> TextResult:
    """Search documentation, code and notes by meaning and words. Call it before you answer about
    the project or edit it. Returns passages with places for read. symbol alone finds
    definitions.
    """
    path = _filter_path(call.ws, path)
    question = passages.parse_question(
        query, path=path, lang=lang, symbol=symbol, kind=kind, collection=collection, ref=ref
    )
    require_query(question.words)
    if relation:
        return _answer_relation(call, question, relation)
    with (
        texts.naming_refs(call.ws),
        named_places.explain_missing_collection(call.ws, [collection] if collection else []),
    ):
        definitions = _answer_definitions(call, question) if question.symbol else None
        if definitions:
            return definitions
        answer = passages.find_passages(call.ws, question, min(max_tokens, call.behaviour.page_chars // 4))
    call.set_origin(answer.origin)
    call.add_quoted((passage.collection, passage.doc_id) for passage in answer.passages)
    where = f" with {question.narrowed.display_text}" if question.narrowed and not answer.passages else ""
    untracked = untracked_notice(answer.origin.kb)
    more = f"; {answer.left_out} more with a larger max_tokens" if answer.left_out and not answer.weak else ""
    sentences = [
        f"{plural(len(answer.passages), 'passage')}{where}{more}.",
        f"{WEAK_NOTE}." if answer.weak else "",
        "" if answer.passages else "Other words, fewer filters, or grep for an exact text.",
        "" if answer.passages else _describe_path(call.ws, path, ref),
        f"{untracked}." if untracked else "",
        "" if ref else _describe_uncovered(call.ws),
    ]
    _warn_of_index(call, answer.notice)
    text = "\n\n".join(_show_groups(answer.passages))
    return TextResult(text=text, message=" ".join(filter(None, sentences)))


def _filter_path(ws: Workspace, path: str) -> str:
    """Return a filter for patterns: relative to the top of the repository, and empty
    for the top.
    """
    relative = texts.relative_path(ws, path)
    return "" if relative.rstrip("/") == "." else relative


def _describe_path(ws: Workspace, path: str, ref: str) -> str:
    """Return the sentence about a filter that matches no file; empty if it matches one."""
    files = SearchedFiles.open(ws, ref or None) if path else None
    if files is None or files.list_paths(path=path):
        return ""
    names = files.list_paths()
    folders_of = sorted({folder for name in names if (folder := posixpath.dirname(name))})
    near = closest(path.strip("/"), [*names, *folders_of])
    return terminal_text.escape_line(f"No file matches path={path}{'. Closest: ' if near else ''}{', '.join(near)}.")


def _warn_of_index(call: Call, notice: str) -> None:
    if notice:
        call.warn(INCOMPLETE, notice)


def _describe_uncovered(ws: Workspace) -> str:
    """Return the sentence about tracked files that `search` does not read; empty if none."""
    number = file_texts.count_uncovered(ws)
    verb, them = ("is", "it") if number == 1 else ("are", "them")
    return f"{plural(number, 'tracked file')} {verb} in no source; grep and read cover {them}." if number else ""


def _answer_definitions(call: Call, question: NarrowedQuestion) -> TextResult | None:
    """Return the definitions of a name; None if no code defines it. Then a search follows."""
    report, origin, notice = passages.definitions_soon(call.ws, question)
    if not report.definitions:
        return None
    call.set_origin(origin)
    _warn_of_index(call, notice)
    definitions = report.definitions[:MAX_LISTED_DEFINITIONS]
    first = f", the first {len(definitions)}" if len(report.definitions) > len(definitions) else ""
    count = plural(len(report.definitions), "definition")
    return TextResult(
        text="\n".join(map(_show_definition, definitions)),
        message=f"{count} of {question.symbol!r}{first}. read with symbol shows the code.",
    )


def _show_groups(passages_shown: Sequence[PackedPassage]) -> Iterator[str]:
    """Return the passages. If documents and code answer, each kind has a title."""
    for title, passage in group_by_kind(passages_shown):
        if title:
            yield f"{title}:"
        yield _show_passage(passage)


def _answer_relation(call: Call, question: NarrowedQuestion, relation: str) -> TextResult:
    """Return the callers or callees of a name. Raises `UsageInvalid` without a name."""
    checked_relation: Relation | None = next((name for name in RELATIONS if name == relation), None)
    if checked_relation is None:
        raise UsageInvalid(
            f"no such relation: {relation!r}",
            hint="pass 'relation=callers' or 'relation=callees'",
            parameter="relation",
            value=relation,
        )
    if not question.symbol:
        raise UsageInvalid(
            "relation needs symbol, and no query.",
            hint=f"pass a symbol, such as 'symbol=Session.refresh relation={relation}'",
            parameter="relation",
            value=relation,
        )
    with (
        texts.naming_refs(call.ws),
        named_places.explain_missing_collection(call.ws, [question.collection] if question.collection else []),
    ):
        report, origin = passages.related_code(call.ws, question, checked_relation)
    call.set_origin(origin)
    lines = [_show_related(row, report.relation) for row in report.related]
    lines = lines[: pages.fit_lines(lines, call.behaviour.page_chars)]
    hidden = len(report.related) + report.left_out - len(lines)
    count = plural(len(report.related) + report.left_out, relation.removesuffix("s"))
    more = f"; {hidden} left out, path shows them" if hidden else ""
    return TextResult(text="\n".join(lines), message=f"{count} of {question.symbol!r}, by name{more}.")


def _show_related(row: RelatedCode, relation: str) -> str:
    head = [
        _format_place(row.path, row.line, row.last_line),
        f"{row.kind} {row.symbol}".strip(),
        _describe_state(row.uncommitted),
    ]
    calls = [
        f"  {call.line}: {terminal_text.escape_controls(call.text)}"
        if relation == "callers"
        else f"  {terminal_text.escape_line(call.path)}:{call.line}: {terminal_text.escape_controls(call.text)}"
        for call in row.calls
    ]
    return "\n".join([_head_line(head), *calls])


def _show_passage(passage: PackedPassage) -> str:
    """Return the place, the description and the text of a passage."""
    head = [passage.shown_place, passage.symbol or passage.heading, _describe_state(passage.uncommitted)]
    head += [passage.outdated, also_in_line(passage.also_in), f"cut {passage.cut}" if passage.cut else ""]
    text = "\n".join(filter(None, (passage.signature and f"… {passage.signature}", passage.text)))
    return f"{_head_line(head)}\n{fence_text(text)}"


def _show_definition(definition: SymbolDefinition) -> str:
    place = _format_place(definition.path, definition.line, definition.last_line)
    state = _describe_state(definition.uncommitted)
    return _head_line([place, f"{definition.kind} {definition.symbol}", state, definition.signature])


def _head_line(parts: Iterable[str]) -> str:
    return " · ".join(terminal_text.escape_line(part) for part in parts if part)


def _describe_state(uncommitted: str) -> str:
    """Return how a file differs from the commit; empty if it does not."""
    return f"{uncommitted}, not committed" if uncommitted else ""


def _format_place(name: str, first: int, last: int) -> str:
    return f"{name}:{first}" if first == last else f"{name}:{first}-{last}"


@tool(
    "R",
    title="Read text",
    reads_files=True,
    reads_git=True,
    includes=("chroma_get_documents",),
    same_effect=("chroma_get_documents",),
)
def read(
    call: Call,
    *,
    name: Annotated[str, Given("path, COLLECTION/ID or place such as src/auth.py:10-42")] = "",
    lines: Annotated[str, Given("lines such as 10-42")] = "",
    symbol: Annotated[str, Given("class or function")] = "",
    ref: Ref = "",
) -> TextResult:
    """Read a file, a stored document, some lines or the code of a symbol. List the documents of a
    folder or collection. The last line names the next page.
    """
    if not name and not symbol:
        raise UsageInvalid(
            "no name and no symbol are given.", hint="pass 'name=docs/setup.md' or 'symbol=Session.refresh'"
        )
    place = texts.normalize_place(call.ws, name)
    if not symbol and re.fullmatch(r"[^:]+\.\w+::[\w.:]+", place):  # as pytest writes it
        symbol, place = place, ""
    with texts.naming_refs(call.ws):
        if symbol:
            return _read_symbol(call, symbol, place, ref)
        bare, placed = texts.split_place(place)
        try:
            text = _find_text(call, bare, ref, lines or placed)
        except DocumentMissing:
            if not placed:
                raise
            text, placed = texts.find_text(call.ws, place, ref), ""  # the name itself ends like that
    call.set_origin(text.origin)
    call.add_quoted([text.key] if text.key else ())
    page = texts.lines_of(text, lines or placed, call.behaviour.page_chars)
    return TextResult(text=_show_page(text, page), message=_describe_page(text, page, ref))


def _find_text(call: Call, name: str, ref: str, lines: str) -> Text:
    """Return a document, or the list of a folder or a collection."""
    first = texts.first_line(lines)
    is_folder = folders.is_folder(name)
    listing = folders.list_below(call.ws, name, ref, first) if is_folder else None
    try:
        return listing or texts.find_text(call.ws, name, ref)
    except (CollectionMissing, DocumentMissing, NotInitialized, PinMissing, UsageInvalid):
        listing = None if is_folder else folders.list_below(call.ws, name, ref, first)
        if listing is None:
            raise
        return listing


def _show_page(text: Text, page: TextLines) -> str:
    version = f"commit {text.commit[:7]}" if text.commit else ""
    if text.revision:
        version = f"revision {text.revision[:7]}"
    head = [_format_place(text.name, page.first, page.last), version, _describe_state(text.uncommitted)]
    return f"{_head_line(head)}\n{fence_text(page.text)}"


def _describe_page(text: Text, page: TextLines, ref: str) -> str:
    """Return the sentence that names the lines, and the call for the next page."""
    if not page.total:
        return "no lines: it is empty."
    sentence = f"lines {page.first} to {page.last} of {page.total}."
    if page.cut:
        sentence = f"{sentence} Line {page.first} is longer than a page: grep finds text in it."
    if page.last < page.end:
        end = "" if page.end == page.total else page.end
        at = f" ref={ref}" if ref else ""
        sentence = f"{sentence} Next page: read name={text.name} lines={page.last + 1}-{end}{at}"
    return sentence


def _read_symbol(call: Call, symbol: str, path: str, ref: str) -> TextResult:
    """Return the code of the first definitions. Raises `UsageInvalid` if there are none."""
    report, origin = passages.find_definitions(call.ws, passages.parse_question("", symbol=symbol, path=path, ref=ref))
    call.set_origin(origin)
    if not report.definitions:
        raise UsageInvalid(
            f"no code here defines {symbol!r}{f' in {path}' if path else ''}.",
            hint=f"pass 'symbol=*{symbol}*' to find longer names, or use search or grep to find where it is used",
            parameter="symbol",
            value=symbol,
        )
    exact = [row for row in report.definitions if row.symbol == symbol] or report.definitions
    contents: list[str] = []
    next_pages: list[str] = []
    for row in exact[:MAX_READ_DEFINITIONS]:
        text = texts.find_text(call.ws, row.path, ref)
        page = texts.lines_of(text, f"{row.line}-{row.last_line}", call.behaviour.page_chars // MAX_READ_DEFINITIONS)
        contents.append(_show_page(text, page))
        if page.last < page.end:
            next_pages.append(_describe_page(text, page, ref))
    rest = f" Others: search symbol={symbol}" if len(exact) > MAX_READ_DEFINITIONS else ""
    message = f"{plural(len(exact), 'definition')} of {symbol!r}.{rest}"
    return TextResult(text="\n\n".join(contents), message=" ".join([message, *next_pages]))


@tool(
    "R",
    title="Find lines",
    reads_files=True,
    reads_git=True,
    includes=("chroma_get_documents",),
    same_effect=("chroma_get_documents",),
)
def grep(
    call: Call,
    *,
    pattern: Annotated[str, Given("regular expression such as (?i)timeout")],
    fixed: Annotated[bool, Given("literal text")] = False,
    path: Path = "",
    collection: CollectionName = "",
    context: Annotated[int, Given("lines of context", low=0, high=20, clamped=True)] = 0,
    limit: Annotated[int, Given("matching lines", low=1, high=1000, clamped=True)] = 50,
    ref: Ref = "",
) -> TextResult:
    """Find lines by regular expression or literal text in tracked files and stored documents."""
    matcher = Pattern(pattern, fixed=fixed, linear=True)
    path = _filter_path(call.ws, path)
    narrowed = GrepOptions(collections=[collection] if collection else [], ref=ref or None, path=path)
    with texts.naming_refs(call.ws):
        report = grep_texts(call.ws, matcher, context=context, limit=limit, **narrowed)
    call.set_origin(passages.build_origin(report.kb, report.notes))
    rows = [(document.name, line) for document in report.documents for line in document.lines]
    lines = [_show_line(name, line) for name, line in rows]
    lines = lines[: pages.fit_lines(lines, call.behaviour.page_chars)]
    hidden = report.count - sum(line.matched for _, line in rows[: len(lines)])
    more = f"; {hidden} left out, path or limit shows them" if hidden else ""
    sentences = [f"{plural(report.count, 'line')} in {plural(len(report.documents), 'document')}{more}."]
    other_case = count_without_case(call.ws, matcher, report, **narrowed)
    if other_case:
        ignoring = f"(?i){re.escape(pattern) if fixed else pattern}"
        sentences.append(f"{plural(other_case, 'line')} if case is ignored: grep pattern={ignoring}")
    if not ref:
        sentences += _describe_modified(call.ws, list(dict.fromkeys(name for name, _ in rows[: len(lines)])))
    if not report.count and ("\n" in pattern or r"\n" in pattern):
        sentences.append("A pattern matches within one line.")
    if not report.count:
        sentences.append(_describe_path(call.ws, path, ref))
    return TextResult(text="\n".join(lines), message=" ".join(filter(None, [*sentences, *report.warnings])))


def _describe_modified(ws: Workspace, names: Sequence[str]) -> list[str]:
    """Return the sentence about files whose lines are not those of the commit."""
    modified = [terminal_text.escape_line(path) for path in file_texts.list_modified(ws, names)]
    return [f"Modified, not committed: {first_of(modified, 3)}."] if modified else []


def _show_line(name: str, line: MatchedLine) -> str:
    mark = ":" if line.matched else "-"
    text = line.text if len(line.text) <= MAX_LINE_CHARS else f"{line.text[:MAX_LINE_CHARS]}…"
    return f"{terminal_text.escape_line(name)}{mark}{line.number}{mark}{terminal_text.escape_controls(text)}"
