"""A section on the server's tools in the files of instructions that agents read: the *rules*.

`AGENTS.md` is such a file, and some clients read others instead (`table`). The section is between
two marker lines. All bytes outside of the markers stay as they are. The begin marker also records
that vmrag created the file, so that any clone can delete it again.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_link.errors import UsageInvalid
from vmrag_link.file_access import describe_file_type, read_regular
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_mcp.clients.settings_file import MAX_FILE_BYTES, SettingsFile, TextRefused, lock_installation
from vmrag_mcp.clients.table import CLIENTS

AGENTS = "AGENTS.md"
FILES = (AGENTS, *dict.fromkeys(name for client in CLIENTS.values() for name in client.rules))
BEGIN, BEGIN_NEW = "<!-- vmrag: begin -->", "<!-- vmrag: begin, file created by vmrag -->"
END = "<!-- vmrag: end -->"
TEXT = """\
## Project knowledge (tools of the MCP server `vmrag`)
- Before you answer a question about the project or edit its code, call `search`.
- To find a definition, call `search` with `symbol` alone. For an exact text, call `grep`. Then `read` a place from the results.
- `ref=v1.0` reads an older version. `history` lists what changed since a tag.
- `remember` stores a decision, a reason or a finding that the user wants to know later and that no file contains.
- If an answer has a line `warning:`, tell the user."""

_MARKER = re.compile(rb"^<!-- vmrag: (begin|end)\b[^\n]*?-->[ \t]*(?=\r?$)", re.MULTILINE)
_QUOTED = re.compile(rb"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(rb"(?<!\S)@(?:\.{1,2}/)*AGENTS\.md(?![\w/])")


class RulesFile(Record, frozen=True):
    """`changed`: the section was written or removed."""

    file: str
    changed: bool


class RulesReport(Record, frozen=True):
    """The files that have the section, or from which it was removed."""

    rules: tuple[RulesFile, ...]


class RulesChange(NamedTuple):
    """The new content of one file. `after=None` deletes the file."""

    file: SettingsFile
    before: bytes | None
    after: bytes | None


class _Section(NamedTuple):
    start: int
    end: int
    created: bool
    line_end: bytes


def install_rules(directory: Path) -> RulesReport:
    """Write the section without a client. Raises `GitRepositoryMissing` and `UsageInvalid`."""
    with lock_installation():
        return RulesReport(apply_rules(plan_rules(plumbing.locate_work_tree(directory), None)))


def uninstall_rules(directory: Path) -> RulesReport:
    """Remove the section from all files. Raises `GitRepositoryMissing` and `UsageInvalid`."""
    with lock_installation():
        return RulesReport(apply_rules(plan_removal(plumbing.locate_work_tree(directory))))


def plan_rules(places: Places, clients: Iterable[str] | None) -> list[RulesChange]:
    """Return the changes that write the section into `AGENTS.md`, and into the files that these
    clients read instead; None: into such files that exist.

    Raises `UsageInvalid` for a file that cannot be edited.
    """
    changes: dict[str, RulesChange] = {}
    for name in (AGENTS, *_list_instead(places.top, clients)):
        label = _follow_link(places.top, name)
        file = SettingsFile(places.top / label, label, places.top)
        with _report_refusals(label):
            before = _read_text(file)
            imports_agents = before is not None and _IMPORT.search(_QUOTED.sub(b"", before))
            if label == AGENTS or not imports_agents:  # a file that imports `AGENTS.md` has the section from there
                changes[label] = RulesChange(file, before, with_section(before))
    return list(changes.values())


def plan_removal(places: Places, names: Sequence[str] = FILES) -> list[RulesChange]:
    """Return the changes that remove the section. Raises `UsageInvalid` for broken
    markers.
    """
    changes = []
    for label in dict.fromkeys(_follow_link(places.top, name) for name in names):
        file = SettingsFile(places.top / label, label, places.top)
        if _mentions_section(file.path):
            with _report_refusals(label):
                before = _read_text(file) or b""
                changes.append(RulesChange(file, before, without_section(before)))
    return [change for change in changes if change.after != change.before]


def apply_rules(changes: Sequence[RulesChange]) -> tuple[RulesFile, ...]:
    """Write the files that differ. Raises `UsageInvalid` if another program has changed one."""
    for file, before, after in changes:
        with _report_refusals(file.label):
            if after is None:
                file.delete_file(before or b"", ())
            elif after != before:
                file.replace_content(before, after)
    return tuple(RulesFile(file.label, changed=after != before) for file, before, after in changes)


def with_section(content: bytes | None) -> bytes:
    """Return the content with the section.

    Raises `TextRefused` unless the markers are absent or are one pair.
    """
    if content is None:
        return _format_section(BEGIN_NEW, b"\n") + b"\n"
    if section := _find_section(content):
        begin = BEGIN_NEW if section.created else BEGIN
        return content[: section.start] + _format_section(begin, section.line_end) + content[section.end :]
    line_end = b"\r\n" if b"\r\n" in content else b"\n"
    if content and not content.endswith(b"\n"):
        return content + line_end * 2 + _format_section(BEGIN, line_end)
    return content + (line_end if content else b"") + _format_section(BEGIN, line_end) + line_end


def without_section(content: bytes) -> bytes | None:
    """Return the content without the section; None if vmrag created the file and nothing else is in
    it.

    Raises `TextRefused` unless the markers are absent or are one pair.
    """
    section = _find_section(content)
    if section is None:
        return content
    before, after = content[: section.start], content[section.end :].removeprefix(section.line_end)
    if section.end == len(content):
        before = before.removesuffix(section.line_end * 2)
    elif before.endswith(b"\n" + section.line_end):
        before = before.removesuffix(section.line_end)
    rest = before + after
    return None if section.created and not rest.strip() else rest


def _format_section(begin: str, line_end: bytes) -> bytes:
    return line_end.join(line.encode() for line in (begin, *TEXT.splitlines(), END))


def _find_section(content: bytes) -> _Section | None:
    markers = list(_MARKER.finditer(content))
    if not markers:
        return None
    if [marker[1] for marker in markers] != [b"begin", b"end"]:
        raise TextRefused(f"its lines {BEGIN} and {END} are not exactly one pair")
    begin, end = markers
    line_end = b"\r\n" if content.startswith(b"\r\n", begin.end()) else b"\n"
    return _Section(begin.start(), end.end(), begin[0].strip() == BEGIN_NEW.encode(), line_end)


def _list_instead(top: Path, clients: Iterable[str] | None) -> Iterator[str]:
    """Yield the files that these clients read instead of `AGENTS.md`."""
    for name in CLIENTS if clients is None else clients:
        labels = CLIENTS[name].rules
        existing = tuple(label for label in labels if os.path.lexists(top / label))
        if existing:
            yield existing[0]
        elif labels and clients is not None:  # the user named the client, so the file is created
            yield labels[0]


def _follow_link(top: Path, label: str) -> str:
    """Return the target of a link between these files, or the label itself.

    Many projects link one of these files to another, which is then the file to edit.
    """
    with contextlib.suppress(OSError):
        target = str((top / label).readlink())
        return target if target in FILES else label
    return label


def _read_text(file: SettingsFile) -> bytes | None:
    if what := describe_file_type(file.path):
        raise TextRefused(f"it is {what}")
    content = file.read_content()
    if content and b"\0" in content:
        raise TextRefused("it is not a UTF-8 text")
    return content


def _mentions_section(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return _MARKER.search(read_regular(path, MAX_FILE_BYTES + 1)) is not None
    return False


@contextlib.contextmanager
def _report_refusals(label: str) -> Iterator[None]:
    try:
        yield
    except TextRefused as refused:
        raise UsageInvalid(
            f"cannot edit {label}: {refused.reason}",
            hint=f"run 'vmrag mcp install --rules --print', then edit {label} yourself",
            file=label,
        ) from refused
