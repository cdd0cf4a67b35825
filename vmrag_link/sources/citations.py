"""The files and lines of the repository that a note cites, found in its text alone.

A citation is a path in prose or in a code span (`src/auth.py`, `src/auth.py:10-42`,
`src/auth.py#L10-L20`), or the target of a Markdown link. Code blocks and URLs are ignored. This
module does not check that git tracks such a file.

The text is untrusted, so the time of each step is proportional to its length.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote

from vmrag_link.models import Record

MAX_CITATIONS = 1_000
"""Maximum citations of one note. Further ones are ignored, like the text after these limits."""

_MAX_NOTE_CHARACTERS = 200_000
_MAX_LINE_CHARACTERS = 10_000
_MAX_PATH_CHARACTERS = 500
"""Maximum length of a path with its line numbers."""

_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})(.*)")
_LIST_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]")
_CODE_INDENT = re.compile(r"(?: {4}|\t| {1,3}\t)")
_BACKTICKS = re.compile(r"`+")
_URL = re.compile(r"://\S*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}\Z")
_LINK = re.compile(r"\]\([ \t]*(?:<([^<>]*)>|([^\s()<>]+(?:\([^\s()]*\)[^\s()<>]*)*))")
_REFERENCE = re.compile(r" {0,3}\[[^\]]+\]:[ \t]*(?:<([^<>]*)>|(\S+))")
_OTHER_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\d)|//")
_TOKEN = re.compile(r"[^\s\"'<>()\[\]{}|*,;`\u2018\u2019\u201c\u201d\u00ab\u00bb]+")
_LINES = re.compile(
    r"(?::(?P<first>\d{1,7})(?:[-\u2013](?P<last>\d{1,7}))?(?::\d{1,7})?"
    r"|#L(?P<first_on_github>\d{1,7})(?:C\d{1,7})?(?:-L?(?P<last_on_github>\d{1,7})(?:C\d{1,7})?)?)\Z"
)
_MAX_LINES_CHARACTERS = 40
"""Maximum length of a match of `_LINES`."""

_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9_+-]{0,15}\Z")
_NAME = re.compile(r"[\w.+@-]+\Z")


class Citation(Record, frozen=True):
    """A cited file or part of a file.

    `first` and `last` are line numbers from 1. Both are 0 for the whole file.
    """

    paths: tuple[str, ...]
    """The possible files, the most probable one first."""
    first: int = 0
    last: int = 0

    def name_place(self, path: str) -> str:
        """Return a place such as `src/auth.py:10-42`."""
        if not self.first:
            return path
        return f"{path}:{self.first}" if self.first == self.last else f"{path}:{self.first}-{self.last}"


def find_citations(note: str, text: str) -> tuple[Citation, ...]:
    """Return the citations in a note's text in order, without repetitions.

    `note`: its path from the top, to which links are relative.
    """
    citations: dict[Citation, None] = {}
    folder = posixpath.dirname(note)
    for line in _list_prose(text[:_MAX_NOTE_CHARACTERS]):
        for citation in _find_in_line(line[:_MAX_LINE_CHARACTERS], folder):
            if paths := tuple(path for path in citation.paths if path != note):
                citations[Citation(paths, citation.first, citation.last)] = None
        if len(citations) >= MAX_CITATIONS:
            break
    return tuple(citations)[:MAX_CITATIONS]


def _list_prose(text: str) -> Iterator[str]:
    """Yield the lines outside of code blocks."""
    fence = ""  # the characters that opened the present block of code
    in_list = False
    after_blank = True
    for line in text.splitlines():
        match = _FENCE.match(line)
        marker, info = match.groups() if match else ("", "")
        if fence:
            if marker.startswith(fence) and not info.strip():
                fence = ""
            continue
        if marker and not (marker[0] == "`" and "`" in info):
            fence = marker
            continue
        if not line.strip():
            after_blank = True
            continue
        if _CODE_INDENT.match(line):
            if after_blank and not in_list:
                continue  # `after_blank` stays: the next indented line belongs to the same block
        elif _LIST_ITEM.match(line):
            in_list = True
        elif after_blank and not line.startswith(" "):
            in_list = False
        after_blank = False
        yield line


def _find_in_line(line: str, folder: str) -> Iterator[Citation]:
    prose, spans = _split_code_spans(line)
    for span in spans:
        yield from _find_in_code(span.strip())
    for link in _LINK.finditer(prose):
        yield from _read_target(link[1] or link[2] or "", folder)
    if reference := _REFERENCE.match(prose):
        yield from _read_target(reference[1] or reference[2] or "", folder)
        prose = prose[reference.end() :]
    for token in _TOKEN.findall(_without_urls(_LINK.sub(" ", prose))):
        yield from _read_token(token)


def _split_code_spans(line: str) -> tuple[str, list[str]]:
    """Return the text outside and inside of code spans.

    A span ends at the next run of as many backticks.
    """
    runs = list(_BACKTICKS.finditer(line))
    following: dict[int, int] = {}
    closing = [-1] * len(runs)
    for number in range(len(runs) - 1, -1, -1):
        length = runs[number].end() - runs[number].start()
        closing[number] = following.get(length, -1)
        following[length] = number
    prose, spans, start, number = [], [], 0, 0
    while number < len(runs):
        if (end := closing[number]) < 0:
            number += 1
            continue
        prose.append(line[start : runs[number].start()])
        spans.append(line[runs[number].end() : runs[end].start()])
        start, number = runs[end].end(), end + 1
    prose.append(line[start:])
    return " ".join(prose), spans


def _find_in_code(span: str) -> Iterator[Citation]:
    """Yield the citations of a code span. It may be a path with blanks, or a bare file name.
    Otherwise each word may be a path.
    """
    if "://" in span:
        span = _without_urls(span)
    words = span.split()
    if len(words) == 1 or (words and _SUFFIX.search(_split_lines(span)[0])):
        yield from _read_token(span, whole=True)
    if len(words) > 1:
        for token in _TOKEN.findall(span):
            yield from _read_token(token)


def _read_token(token: str, *, whole: bool = False) -> Iterator[Citation]:
    """Yield the citation of a word, if it is one. `whole`: in a code span, a name without folder
    and suffix may also be a file.
    """
    token = token.rstrip(".,:;!?")
    if len(token) > _MAX_PATH_CHARACTERS or token.startswith(("-", "~", "$", "/")):
        return
    path, first, last = _split_lines(token)
    if not ("/" in path or _SUFFIX.search(path) or (whole and _NAME.match(path))):
        return
    path = path.removeprefix("./")
    if _is_path(path):
        yield Citation((path,), first, last)


def _read_target(target: str, folder: str) -> Iterator[Citation]:
    """Yield the citation of a link target. A link is relative to the note's folder. GitHub reads
    `/docs/a.md` from the top.
    """
    if len(target) > _MAX_PATH_CHARACTERS or _OTHER_SCHEME.match(target):
        return
    path, first, last = _split_lines(target)
    path = unquote(path.partition("?")[0])
    if not path:
        return
    relative = posixpath.normpath(posixpath.join(folder, path)) if not path.startswith("/") else ""
    paths = tuple(dict.fromkeys(filter(_is_path, (relative, posixpath.normpath(path.lstrip("/"))))))
    if paths:
        yield Citation(paths, first, last)


def _split_lines(text: str) -> tuple[str, int, int]:
    """Split a citation into its path, its first and its last line: 0 and 0 without lines."""
    match = _LINES.search(text, max(0, len(text) - _MAX_LINES_CHARACTERS))
    if match is None:
        return re.split("[:#]", text, maxsplit=1)[0], 0, 0
    path = text[: match.start()]
    first = int(match["first"] or match["first_on_github"])
    last = int(match["last"] or match["last_on_github"] or first)
    return (path, min(first, last), max(first, last)) if first and last else (path, 0, 0)


def _without_urls(text: str) -> str:
    parts, start = [], 0
    for match in _URL.finditer(text):
        before = text[start : match.start()]
        scheme = _SCHEME.search(before, max(0, len(before) - 32))
        parts.append(before[: scheme.start()] if scheme else before)
        start = match.end()
    return " ".join((*parts, text[start:]))


def _is_path(path: str) -> bool:
    """Return whether a path can name a tracked file, and can be shown.

    Paths out of the repository or into `.git` cannot, and no name with a control character.
    """
    return (
        path.isprintable()
        and "\\" not in path
        and not any(part.lower() in ("", ".", "..", ".git") for part in path.split("/"))
    )
