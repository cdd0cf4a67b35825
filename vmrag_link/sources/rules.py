"""Decide which files are documents of a source without reading them: by their paths, modes,
attributes and sizes, and by the pathspecs of `sources`.

A path alone is enough for a file that git does not track yet, or that is removed. A reason
completes `PATH is left out: it …`. Pathspecs are untrusted. `settings.flaws.pathspec_flaw` decides
which are accepted.
"""

from __future__ import annotations

import functools
import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from vmrag_link.conversion import formats
from vmrag_link.documents.import_base import MAX_ID, find_id_problem
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import wildmatch

_LOCKS = frozenset(
    (
        "package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock Cargo.lock "
        "poetry.lock uv.lock pdm.lock Pipfile.lock pixi.lock conda-lock.yml Gemfile.lock composer.lock go.sum go.work.sum "
        "mix.lock pubspec.lock Podfile.lock Package.resolved flake.lock gradle.lockfile packages.lock.json Chart.lock "
        "buf.lock MODULE.bazel.lock .terraform.lock.hcl"
    ).split()
)
_MINIFIED = re.compile(r"[.-]min\.(?:js|mjs|cjs|css)$|\.(?:js|css|mjs|cjs)\.map$", re.IGNORECASE)
_PLAIN_SUFFIXES = frozenset((".rdoc", ".pod", ".creole", ".texi", ".texinfo", ".tex", ".man", ".text", ""))
"""Suffixes of documents other than the formats that `vmrag import` stores unchanged. Without a
suffix: README.
"""

NOTEBOOK = "notebook"


def is_plain_name(path: str) -> bool:
    """Return whether a path is an id, with a cheaper check than `find_id_problem`."""
    return len(path) <= MAX_ID and path.isascii() and path.isprintable()


def find_name_flaw(path: str) -> str:
    """Return why a path cannot be an id, or an empty text."""
    if is_plain_name(path):
        return ""
    return f"has a path that {why}" if (why := find_id_problem(path)) else ""


def find_kind_flaw(path: str, kind: str, *, is_handwritten: bool) -> str:
    """Return why a file is not a document of a source of this kind, or an empty text."""
    name = path.rpartition("/")[2]
    if not is_handwritten and name in _LOCKS:
        return "is a lock file"
    if not is_handwritten and _MINIFIED.search(name):
        return "is minified"
    return (
        "" if kind == "code" else _find_format_flaw(posixpath.splitext(formats.strip_template_suffix(name))[1].lower())
    )


def can_read(path: str) -> bool:
    """Return whether a source of documents can read a file, and an import knows its format."""
    return formats.find_built_in(path) is not None and not (
        find_name_flaw(path) or find_kind_flaw(path, "document", is_handwritten=True)
    )


@functools.lru_cache(maxsize=1024)
def _find_format_flaw(suffix: str) -> str:
    is_plain = suffix in _PLAIN_SUFFIXES
    file_format = formats.find_by_suffix(f"x{suffix}") if is_plain else formats.find_built_in(f"x{suffix}")
    if file_format is None:
        return "" if is_plain else f"is {suffix}, not a document (a source of `kind: code` accepts it if it is text)"
    if file_format.where == "here" or file_format.file_type == NOTEBOOK:
        return ""
    return f"is {file_format.file_type}, not plain text (`vmrag import` converts it)"


_NOTEBOOK_BYTES = 64_000_000
"""Maximum bytes of a notebook, most of which are pictures that are discarded."""


def get_byte_limit(path: str, max_bytes: int) -> int:
    """Return how many bytes of a file are read. `max_bytes`: the bytes that may be indexed."""
    return max(max_bytes, _NOTEBOOK_BYTES) if path.lower().endswith(".ipynb") else max_bytes


def find_size_flaw(size: int, max_bytes: int) -> str:
    """Return why a file of this size is not a document, or an empty text."""
    if not size:
        return "is empty"
    return f"has {size:,} bytes, more than {max_bytes:,}" if size > max_bytes else ""


def fold_path(path: str) -> str:
    """Return a text that is equal for paths that a file system may treat as the same."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path.casefold())


def find_source(sources: Iterable[SourceSettings], path: str) -> SourceSettings | None:
    """Return the first source that names a path, if its name allows a document. Otherwise None."""
    return next((source for source in sources if _accepts_path(source, path)), None)


def is_named(source: SourceSettings, path: str) -> bool:
    """Return whether the pathspecs of a source match a path."""
    return path_matcher(source.paths)(path) and not path_matcher(source.exclude)(path)


def _accepts_path(source: SourceSettings, path: str) -> bool:
    flaw = find_name_flaw(path) or find_kind_flaw(path, source.kind, is_handwritten=False)
    return is_named(source, path) and not flaw


@functools.lru_cache(maxsize=256)
def path_matcher(pathspecs: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that returns whether one of these pathspecs matches a path.

    Most pathspecs look like `**/*.md`, so all endings are matched with one comparison.
    """
    endings = tuple(pathspec[len(_ANYWHERE) :] for pathspec in pathspecs if _is_ending(pathspec))
    others = tuple(pathspec for pathspec in pathspecs if not _is_ending(pathspec))
    return lambda path: path.endswith(endings) or any(_matches_pathspec(pathspec, path) for pathspec in others)


_ANYWHERE = "**/*"


def _is_ending(pathspec: str) -> bool:
    rest = pathspec.removeprefix(_ANYWHERE)
    return rest != pathspec and not set(rest) & set("*?[\\/")


def _matches_pathspec(pathspec: str, path: str) -> bool:
    """Return whether git's `glob` magic matches the path. A folder matches all files in it."""
    below = f"{pathspec.rstrip('/')}/"
    if path == pathspec or path.startswith(below):
        return True
    return wildmatch.compile_pattern(pathspec).fullmatch(wildmatch.encode_path(path)) is not None


def exclude_notes(sources: Sequence[SourceSettings]) -> tuple[SourceSettings, ...]:
    """Return the sources with the folders of writable sources excluded from all others, so that a
    note is a document once.
    """
    folders = tuple(f"{source.folder}/" for source in sources if source.write)
    return tuple(
        source if source.write or not folders else msgspec.structs.replace(source, exclude=(*source.exclude, *folders))
        for source in sources
    )


def select_sources_below(sources: Iterable[SourceSettings], folder: str) -> tuple[SourceSettings, ...]:
    """Return the sources with their paths relative to a folder, without those that match nothing in
    it, and without those of notes.
    """
    rebased = (
        msgspec.structs.replace(
            source, paths=_rebase_pathspecs(source.paths, folder), exclude=_rebase_pathspecs(source.exclude, folder)
        )
        for source in sources
        if not source.write
    )
    return tuple(source for source in rebased if source.paths and "**" not in source.exclude)


def _rebase_pathspecs(pathspecs: Iterable[str], folder: str) -> tuple[str, ...]:
    """Return pathspecs that match the same files, relative to a folder."""
    rests = {(True, tuple(pathspec.split("/"))) for pathspec in pathspecs}
    for name in folder.split("/"):
        rests = {rest for is_literal, parts in rests for rest in _enter_folder(parts, name, is_literal=is_literal)}
    return tuple(sorted({_format_pathspec(parts, is_literal=is_literal) for is_literal, parts in rests}))


def _enter_folder(parts: tuple[str, ...], name: str, *, is_literal: bool) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """Yield the rest of a pathspec inside a folder of this name, and whether it was literal so
    far.
    """
    first, rest = parts[0], parts[1:]
    if first == "**":
        yield False, parts
        if rest:
            yield from _enter_folder(rest, name, is_literal=False)
    elif is_literal and first == name:  # a literal folder matches all files in it
        yield True, rest if rest and rest != ("",) else ("**",)
    elif rest and wildmatch.compile_pattern(first).fullmatch(wildmatch.encode_path(name)):
        yield False, rest


def _format_pathspec(parts: tuple[str, ...], *, is_literal: bool) -> str:
    """Return the pathspec. If it had wildcards, a bracket keeps it from matching as a folder."""
    text = "/".join(parts)
    return text if is_literal or set(text) & set("*?[") else re.sub(r"\w", r"[\g<0>]", text, count=1)


def searches_untracked(source: SourceSettings, *, untracked: bool) -> bool:
    """Return whether untracked files of a source are documents. `untracked`: the setting."""
    return untracked or source.write


def build_pathspecs(source: SourceSettings) -> list[str]:
    """Return the pathspecs of a source as git's arguments after `--`. `*` stays within a folder,
    and `**/` matches any folders or none.
    """
    return [*build_included(source), *build_excluded(source)]


def build_included(source: SourceSettings) -> list[str]:
    """Return the pathspecs of the files of the source, the first part of `build_pathspecs`."""
    return [f":(top,glob){path}" for path in source.paths]


def build_excluded(source: SourceSettings) -> list[str]:
    """Return the pathspecs of the excluded files, the second part of `build_pathspecs`."""
    paths = source.exclude if source.paths else ("**",)  # without a path, git would match all files
    return [f":(top,glob,exclude){path}" for path in paths]
