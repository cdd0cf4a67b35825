"""The tools that find and show texts: search, read, grep; and their results."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.errors import UsageInvalid, plural
from vmrag_link.models import LONGEST_QUERY, Record
from vmrag_link.ops.documents import reading
from vmrag_link.ops.documents.reading import Pattern
from vmrag_link.ops.follow.provenance import untracked_notice
from vmrag_link.ops.index.packing import PackedPassage
from vmrag_link.ops.index.query import require_query
from vmrag_link.ops.index.symbols import SymbolDefinition
from vmrag_link.retrieval.narrowing import path_matcher
from vmrag_link.retrieval.query import LEAST_BUDGET
from vmrag_link.toolsets.essential import passages, texts
from vmrag_link.toolsets.essential.passages import NarrowedQuestion
from vmrag_link.toolsets.essential.texts import Text
from vmrag_mcp.arguments import Given, Ref
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolResult
from vmrag_mcp.session import Call

LONGEST_LINE = 300
"""Characters of a line that is found."""

MOST_DEFINITIONS = 20
READ_DEFINITIONS = 3
OfSymbol = Meta(description="of code, or of a text with headings")
Differs = Meta(description="the file differs from the commit")


class ShownPassage(Record, frozen=True):
    """`place`: `PATH:FIRST-LAST` of a file, else `COLLECTION/ID:FIRST-LAST`, as read takes it.
    `about`: the symbol, or the headings.
    """

    place: str
    text: str
    about: Annotated[str | UnsetType, OfSymbol] = UNSET
    uncommitted: Annotated[str | UnsetType, Differs] = UNSET
    outdated: Annotated[str | UnsetType, Meta(description="changed files or lines that the note cites")] = UNSET
    cut: Annotated[str | UnsetType, Meta(description="the text does not hold whole lines, or was cut to fit")] = UNSET


class SearchDocumentsResult(ToolResult, frozen=True):
    """The best first, with about so many `tokens` together."""

    passages: list[ShownPassage]
    tokens: int


@tool("R", of_files=True, includes=("chroma_query_documents",), same_effect=("chroma_query_documents",), short="search")
def search_documents(
    call: Call,
    *,
    query: Annotated[str, Given("a question, or words; may be left out with symbol", longest=LONGEST_QUERY)] = "",
    path: Annotated[str, Given("part of the path, or a glob: src/auth, *.md")] = "",
    lang: Annotated[str, Given("python, markdown, …")] = "",
    symbol: Annotated[str, Given("alone: where it is defined; e.g. Session.refresh, *Error")] = "",
    kind: Annotated[str, Given("code, document, class, function, …")] = "",
    collection: str = "",
    max_tokens: Annotated[int, Given(low=LEAST_BUDGET, high=20_000, clamped=True)] = 2000,
    ref: Ref = "",
) -> SearchDocumentsResult:
    """Search documents and code by meaning and by words: first, before you answer a question about
    the project or edit it. "Where is X defined" is symbol=X without a query. Uncommitted work is
    found, too.
    """
    asked = passages.question(query, path=path, lang=lang, symbol=symbol, kind=kind, collection=collection, ref=ref)
    require_query(asked.words)
    if asked.symbol and (found := _definitions(call, asked)):
        return found
    answer = passages.answer(call.ws, asked, min(max_tokens, call.behaviour.page_chars // 4))
    call.stands(answer.standing)
    call.quotes((each.collection, each.doc_id) for each in answer.found)
    where = f" with {asked.narrowed.shown}" if asked.narrowed and not answer.found else ""
    untracked = untracked_notice(answer.standing.kb)
    more = f"; {answer.left_out} more with a larger max_tokens" if answer.left_out else ""
    nothing = "" if answer.found else " Other words, fewer filters, or grep for an exact text."
    return SearchDocumentsResult(
        passages=[_passage(each) for each in answer.found],
        tokens=answer.tokens,
        message=f"{plural(len(answer.found), 'passage')}{where}{more}.{nothing}{f' {untracked}.' if untracked else ''}",
    )


def _definitions(call: Call, asked: NarrowedQuestion) -> SearchDocumentsResult | None:
    """None where no code defines the name: then it is searched for."""
    found, standing = passages.definitions(call.ws, asked)
    if not found.definitions:
        return None
    call.stands(standing)
    shown = [_defined(each) for each in found.definitions[:MOST_DEFINITIONS]]
    first = f", the first {len(shown)}" if len(found.definitions) > len(shown) else ""
    said = (
        f"{plural(len(found.definitions), 'definition')} of {asked.symbol!r}{first}; read with symbol shows the code."
    )
    return SearchDocumentsResult(passages=shown, tokens=sum(len(each.text) for each in shown) // 4, message=said)


def _passage(found: PackedPassage) -> ShownPassage:
    return ShownPassage(
        place=found.shown_place,
        text="\n".join(filter(None, (found.signature and f"… {found.signature}", found.text))),
        about=found.symbol or found.heading or UNSET,
        uncommitted=found.uncommitted or UNSET,
        outdated=found.outdated or UNSET,
        cut=found.cut or UNSET,
    )


def _defined(found: SymbolDefinition) -> ShownPassage:
    return ShownPassage(
        place=_place(found.path, found.line, found.last_line),
        text=found.signature,
        about=f"{found.kind} {found.symbol}",
        uncommitted=found.uncommitted or UNSET,
    )


def _place(name: str, first: int, last: int) -> str:
    return f"{name}:{first}" if first == last else f"{name}:{first}-{last}"


class ReadText(Record, frozen=True):
    """`lines`: the first and the last one, in the file; `total`: the number of its last line."""

    name: str
    lines: list[int]
    total: int
    text: str
    commit: Annotated[str | UnsetType, Meta(description="ref was given, for a file")] = UNSET
    revision: Annotated[str | UnsetType, Meta(description="ref was given, for a stored document")] = UNSET
    uncommitted: Annotated[str | UnsetType, Differs] = UNSET


class ReadResult(ToolResult, frozen=True):
    """One text; several where a symbol is defined several times."""

    texts: list[ReadText]


@tool("R", of_files=True, includes=("chroma_get_documents",), same_effect=("chroma_get_documents",))
def read(
    call: Call,
    *,
    name: Annotated[str, Given("a file's path, COLLECTION/ID, or a place that search or grep shows")] = "",
    lines: Annotated[str, Given("e.g. 10-42")] = "",
    symbol: Annotated[str, Given("the code of a class or function; name narrows to a file")] = "",
    ref: Ref = "",
) -> ReadResult:
    """Read a document, a file that sources name, or the code of a symbol: whole, or some lines, as
    it stands here or as it was at a ref. To read on after search or grep.
    """
    if not name and not symbol:
        raise UsageInvalid("Nothing says what to read.", hint="name=docs/setup.md, or symbol=Session.refresh")
    most = call.behaviour.page_chars
    if symbol:
        found = _symbol(call, symbol, name, ref, most)
        return ReadResult(texts=found, message=f"{plural(len(found), 'definition')} of {symbol!r}.")
    name = texts.normalize_place(call.ws, name)
    bare, placed = texts.split_place(name)
    text = texts.find(call.ws, bare if placed and not lines else name, ref)
    call.stands(text.standing)
    call.quotes([text.key] if text.key else ())
    shown = _lines(text, lines or placed, most)
    more = f"; more with lines={shown.lines[1] + 1}-" if not (lines or placed) and shown.lines[1] < shown.total else ""
    return ReadResult(texts=[shown], message=f"Lines {shown.lines[0]} to {shown.lines[1]} of {shown.total}{more}.")


def _symbol(call: Call, symbol: str, path: str, ref: str, most: int) -> list[ReadText]:
    """The code of the first definitions. Raises `UsageInvalid` where there is none."""
    found, standing = passages.definitions(call.ws, passages.question("", symbol=symbol, path=path, ref=ref))
    call.stands(standing)
    if not found.definitions:
        raise UsageInvalid(
            f"No code here defines {symbol!r}{f' in {path}' if path else ''}.",
            hint=f"symbol=*{symbol}* finds longer names; search or grep finds where it stands",
            parameter="symbol",
            value=symbol,
        )
    exact = [each for each in found.definitions if each.symbol == symbol] or found.definitions
    shown = []
    for each in exact[:READ_DEFINITIONS]:
        text = texts.find(call.ws, each.path, ref)
        shown.append(_lines(text, f"{each.line}-{each.last_line}", most // READ_DEFINITIONS))
    return shown


def _lines(text: Text, asked: str, most: int) -> ReadText:
    found = texts.lines_of(text, asked, most)
    return ReadText(
        name=text.name,
        lines=[found.first, found.last],
        total=found.total,
        text=found.text,
        commit=text.commit[:12] or UNSET,
        revision=text.revision[:12] or UNSET,
        uncommitted=text.uncommitted or UNSET,
    )


class GrepResult(ToolResult, frozen=True):
    """`lines`: as `NAME:LINE:TEXT`, and `NAME-LINE-TEXT` of those around; of a long line its
    beginning. `matches`: of how many lines in how many `documents`.
    """

    lines: list[str]
    matches: int
    documents: int


@tool("R", of_files=True, includes=("chroma_get_documents",), same_effect=("chroma_get_documents",))
def grep(
    call: Call,
    *,
    pattern: Annotated[str, Given("regular expression; (?i) ignores case")],
    fixed: Annotated[bool, Given("the text itself")] = False,
    path: Annotated[str, Given("part of the path, or a glob")] = "",
    collection: str = "",
    context: Annotated[int, Given("lines around", low=0, high=20, clamped=True)] = 0,
    limit: Annotated[int, Given(low=1, high=1000, clamped=True)] = 50,
    ref: Ref = "",
) -> GrepResult:
    """Find every line that holds an exact text or matches an expression, in documents and in code:
    error messages, names, settings. For questions, search first.
    """
    wanted = Pattern(pattern, fixed=fixed, linear=True)
    report = reading.grep(
        call.ws, wanted, collections=[collection] if collection else (), ref=ref or None, context=context
    )
    call.stands(passages.stood(report.kb, report.notes))
    meant = path_matcher(path.removeprefix("./")) if path else lambda _: True
    paths = texts.file_paths(call.ws, ref) if path and report.documents else {}
    by_key = {(document.collection, document.doc_id): document for document in report.documents}
    found = [document for key, document in by_key.items() if meant(key[1]) or meant(paths.get(key, key[1]))]
    files = report.kb.sources.collections if report.kb.sources else ()
    keys = [(each.collection, each.doc_id) for each in found[:limit] if each.collection in files]
    above = texts.lines_above(call.ws, keys, ref) if keys else {}
    lines: list[str] = []
    for each in found:
        begins = above.get((each.collection, each.doc_id), 0)
        for line in each.lines:
            mark = ":" if line.matched else "-"
            lines.append(f"{each.name}{mark}{begins + line.number}{mark}{_shortened(line.text)}")
    matches = sum(each.count for each in found)
    more = f"; {len(lines) - limit} lines left out, path or limit shows them" if len(lines) > limit else ""
    said = f"{plural(matches, 'line')} in {plural(len(found), 'document')}{more}."
    return GrepResult(lines=lines[:limit], matches=matches, documents=len(found), message=said)


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"
