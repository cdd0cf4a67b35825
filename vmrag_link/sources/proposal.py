"""Propose sources for a repository without any, for `vmrag init` and for queries before it.

The tables of formats and languages list the readable files. This module decides which of those are
not proposed, and finds few patterns for the others. The name of a file suggests its role. If the
name is not enough, the beginning of the file decides.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from vmrag_link.code import languages
from vmrag_link.conversion import formats
from vmrag_link.settings import SourceSettings
from vmrag_link.settings.flaws import MAX_PATHSPECS, pathspec_flaw
from vmrag_link.sources import first_bytes, rules

FOLDERS = frozenset("doc docs documentation Documentation help manual wiki adr rfcs".split())
"""Folders in which plain texts are documentation, regardless of their names."""

NOT_OURS = frozenset("node_modules vendor third_party bower_components dist build".split())
"""Folders with third-party or generated files."""

NAMES = {"document": ("docs", "documentation", "files"), "code": ("code", "source-code", "symbols")}
"""Names of new sources by kind, the preferred one first."""

Beginnings = Callable[[Sequence[str]], Mapping[str, bytes]]
"""Return the first bytes of the readable ones of these files, by path."""

_TESTS = frozenset("test tests testing testdata fixtures __fixtures__ spec specs".split())
_MAN_FOLDER = re.compile(r"man(?:[1-9]|s|ual|pages|-pages)?")
_API_NAMES = re.compile(r"openapi|swagger|api|spec|schema", re.IGNORECASE)
_PLAIN_NAMES = frozenset(
    "README READ.ME INSTALL NEWS CHANGES CHANGELOG CHANGE-LOG HISTORY HACKING CONTRIBUTING UPGRADING FAQ TODO SECURITY".split()
)
"""Texts anywhere that are documentation, with the ending `.txt` or without one."""

_NO_TEXTS = ("requirements", "robots")
"""First words of the names of texts for programs."""

_DATA = frozenset(("yaml", "json", "csv", "xml"))
"""Formats that are proposed only if they describe an API."""

_PAGES = frozenset(("html",))
"""Formats that are mostly output or templates of programs."""

_SETTINGS_LIKE = frozenset(("css", "dockerfile"))
"""Languages that are not proposed."""

_RECOGNIZERS: Mapping[str, Callable[[bytes], bool]] = {
    "man": first_bytes.is_man_page,
    "script": first_bytes.is_script,
    "api": first_bytes.is_openapi,
}
_MAX_FILES_READ = {"man": 100, "script": 150, "api": 250}
"""Maximum number of files whose beginnings are read. In a repository without settings, each query
reads them.
"""

_MAX_PATTERNS = 20
"""Maximum number of paths and folders of files that no ending identifies."""

_Role = Literal["document", "text", "man", "api", "code", "lines", "script", ""]
"""Role of a file. `lines`: code without a grammar. `script`: a file without an ending."""


class _Roles(NamedTuple):
    """Files by role and pattern."""

    patterns: dict[str, Counter[str]]
    """Patterns by role, with the number of files that each matches."""
    uncertain: dict[str, list[str]]
    """Files whose role depends on their beginning."""
    no_code: list[str]
    """All files that are neither code nor possibly a script."""
    excluded: set[str]


def propose_sources(
    paths: Iterable[str], beginnings: Beginnings, *, stored: Collection[str] = ()
) -> tuple[SourceSettings, ...]:
    """Return sources for the documentation among these tracked files, and for the code if this
    installation can cut it.

    `stored`: the collections of the knowledge base, whose names a source cannot have. Raises the
    errors of `beginnings`.
    """
    roles = _sort_by_role(paths)
    recognized = _find_by_beginning(roles.uncertain, beginnings)
    documents = roles.patterns["document"] + _name_texts(roles.uncertain["text"])
    documents += _cover_files(recognized["man"], roles.uncertain["man"], _ending_pattern)
    documents += _cover_files(recognized["api"], roles.uncertain["api"], _name_pattern)
    code = roles.patterns["lines"]
    if not languages.find_language_problem():
        code += roles.patterns["code"]
        code += _cover_files(recognized["script"], [*roles.uncertain["script"], *roles.no_code], _folder_pattern)
    exclude = tuple(f"**/{folder}/**" for folder in sorted(roles.excluded))
    sources = []
    kinds: tuple[tuple[Literal["document", "code"], Counter[str]], ...] = (("document", documents), ("code", code))
    for kind, patterns in kinds:
        name = next((name for name in NAMES[kind] if name not in stored), "")
        selected = _choose_patterns(patterns, MAX_PATHSPECS - len(exclude))
        if name and selected:
            sources.append(SourceSettings(name, selected, exclude, kind))
    return tuple(sources)


def _choose_patterns(patterns: Counter[str], limit: int) -> tuple[str, ...]:
    """Return the patterns that match most files, in alphabetical order."""
    valid = [pattern for pattern, _ in patterns.most_common() if not pathspec_flaw(pattern)]
    return tuple(sorted(valid[:limit]))


def _sort_by_role(paths: Iterable[str]) -> _Roles:
    roles = _Roles({"document": Counter(), "code": Counter(), "lines": Counter()}, defaultdict(list), [], set())
    for path in paths:
        folders, _, name = path.rpartition("/")
        if foreign := _find_foreign_folders(folders):
            roles.excluded.update(foreign)
            continue
        role, pattern = _find_role(name)
        if role in roles.patterns:
            roles.patterns[role][pattern] += 1
        elif role:
            roles.uncertain[role].append(path)
        if role not in ("code", "lines", "script"):
            roles.no_code.append(path)
    return roles


@functools.lru_cache(maxsize=1024)
def _is_template_ending(ending: str) -> bool:
    return formats.strip_template_suffix(f"x.md.{ending}") == "x.md"


@functools.lru_cache(maxsize=4096)
def _find_foreign_folders(folders: str) -> frozenset[str]:
    return NOT_OURS.intersection(folders.split("/"))


def _find_role(name: str) -> tuple[_Role, str]:
    """Return the role that a name suggests, and the pattern for all such files."""
    stem, dot, ending = name.rpartition(".")
    if not (dot and stem) or name in languages.NAMES:
        return _find_name_role(name)
    if ending == "txt" and _is_plain_name(stem):
        return "document", f"**/{name}"
    name_without_template = formats.strip_template_suffix(name) if _is_template_ending(ending) else name
    if name_without_template != name:
        role, _ = _find_ending_role(name_without_template.rpartition(".")[2])
        return role, f"**/*.{name_without_template.rpartition('.')[2]}.{ending}"
    return _find_ending_role(ending)


def _find_name_role(name: str) -> tuple[_Role, str]:
    language = languages.detect_language(name)
    if language:
        return _find_language_role(language), f"**/{name}"
    if _is_plain_name(name):
        return "document", f"**/{name}"
    return ("" if "." in name else "script"), ""


def _is_plain_name(stem: str) -> bool:
    return stem[:1].isupper() and stem.upper() in _PLAIN_NAMES


@functools.lru_cache(maxsize=1024)
def _find_ending_role(ending: str) -> tuple[_Role, str]:
    name, pattern = f"x.{ending}", f"**/*.{ending}"
    file_format = formats.find_built_in(name)
    role: _Role = "document"
    if rules.find_kind_flaw(name, "document", is_handwritten=True):
        role = "" if file_format else _find_language_role(languages.detect_language(name))
    elif file_format and file_format.file_type == "man":
        role = "man"
    elif file_format and file_format.file_type in _DATA:
        role = "api"
    elif file_format and file_format.file_type in _PAGES:
        role = ""
    elif file_format and file_format.file_type == "text":
        role = "text"
    return role, pattern


def _find_language_role(language: str) -> _Role:
    if not language or language in _SETTINGS_LIKE:
        return ""
    return "code" if language in languages.GRAMMARS else "lines"


def _name_texts(paths: Iterable[str]) -> Counter[str]:
    """Return patterns for the folders in which texts are documentation."""
    folders = Counter[str]()
    for path in paths:
        *around, name = path.split("/")
        at = next((number for number, folder in enumerate(around) if folder in FOLDERS), None)
        if at is not None and not _TESTS.intersection(around) and not name.startswith(_NO_TEXTS):
            folders[_quote_path("/".join(around[: at + 1]))] += 1
    if len(folders) <= _MAX_PATTERNS:
        return Counter({f"{folder}/**/*.txt": number for folder, number in folders.items()})
    inner = Counter[str]()
    for folder, number in folders.items():
        inner[f"**/{folder.rpartition('/')[2]}/**/*.txt"] += number
    return inner


def _find_by_beginning(uncertain: Mapping[str, Sequence[str]], beginnings: Beginnings) -> dict[str, set[str]]:
    """Return the man pages, API descriptions and scripts among these files, by role."""
    certain = {path for path in uncertain["man"] if any(map(_MAN_FOLDER.fullmatch, path.split("/")[:-1]))}
    candidates = {
        "man": [path for path in uncertain["man"] if path not in certain],
        "script": uncertain["script"],
        "api": sorted(uncertain["api"], key=lambda path: (not _API_NAMES.search(path), path)),
    }
    to_read = [path for role, paths in candidates.items() for path in paths[: _MAX_FILES_READ[role]]]
    contents = beginnings(to_read) if to_read else {}
    recognized: dict[str, set[str]] = {}
    for role, paths in candidates.items():
        is_recognized = _RECOGNIZERS[role]
        recognized[role] = {path for path in paths if path in contents and is_recognized(contents[path])}
    recognized["man"] |= certain
    return recognized


def _cover_files(files: Collection[str], candidates: Iterable[str], name: Callable[[str], str]) -> Counter[str]:
    """Return patterns that match these files and no other candidates.

    `name` returns the preferred pattern for a file. It is used if it matches several files, and an
    ending even for one. The second choice is the ending in the same folder, and the last one is the
    path of the file.
    """
    if not files:
        return Counter()
    missing = set(files)
    others = set(candidates).difference(files)
    patterns = Counter[str]()
    for make_pattern in (name, _ending_in_folder):
        wrong_patterns = {make_pattern(path) for path in others}
        groups = defaultdict[str, set[str]](set)
        for path in missing:
            groups[make_pattern(path)].add(path)
        for pattern, group in groups.items():
            if pattern not in wrong_patterns and (len(group) > 1 or make_pattern is _ending_pattern):
                patterns[pattern] = len(group)
                missing -= group
    patterns.update(_quote_path(path) for path in missing)
    ranked = sorted(patterns.items(), key=lambda item: (-item[1], item[0]))
    return Counter(dict(ranked[:_MAX_PATTERNS]))


def _ending_pattern(path: str) -> str:
    return _find_role(path.rpartition("/")[2])[1]


def _name_pattern(path: str) -> str:
    return f"**/{_quote_path(path.rpartition('/')[2])}"


def _folder_pattern(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{_quote_path(folder)}/*" if slash else _quote_path(name)


def _ending_in_folder(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{_quote_path(folder)}{slash}*.{name.rpartition('.')[2]}" if "." in name else _quote_path(path)


def _quote_path(path: str) -> str:
    """Return a path as a pathspec, which cannot quote its wildcards."""
    return re.sub(r"[*?\[\]\\]", "?", path)
