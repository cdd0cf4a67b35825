"""Which files are documents of a source, as far as that is known without reading them: by their
paths, modes, attributes and sizes, and by the pathspecs of `sources`.

A path alone says it before git tracks the file, and after it is gone. A reason completes `PATH is
left out: it …`. Strangers write pathspecs; `settings.flaws.pathspec_flaw` says which are accepted.
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
"""Of documents beside those that `vmrag import` stores as they are written. Without one: README."""

NOTEBOOK = "notebook"


def is_plain_name(path: str) -> bool:
    """Whether it is an id, seen by a cheaper look than `id_problem`'s."""
    return len(path) <= MAX_ID and path.isascii() and path.isprintable()


def find_name_flaw(path: str) -> str:
    if is_plain_name(path):
        return ""
    return f"has a path that {why}" if (why := find_id_problem(path)) else ""


def find_kind_flaw(path: str, kind: str, *, by_hand: bool) -> str:
    """`kind` of the source."""
    name = path.rpartition("/")[2]
    if not by_hand and name in _LOCKS:
        return "is a lock file"
    if not by_hand and _MINIFIED.search(name):
        return "is minified"
    return "" if kind == "code" else _flaw_of_format(posixpath.splitext(formats.strip_template_suffix(name))[1].lower())


def can_read(path: str) -> bool:
    """Return whether the format of a file is one that an import knows and a source of documents
    reads.
    """
    return formats.find_built_in(path) is not None and not (
        find_name_flaw(path) or find_kind_flaw(path, "document", by_hand=True)
    )


@functools.lru_cache(maxsize=1024)
def _flaw_of_format(suffix: str) -> str:
    plain = suffix in _PLAIN_SUFFIXES
    found = formats.find_by_suffix(f"x{suffix}") if plain else formats.find_built_in(f"x{suffix}")
    if found is None:
        return "" if plain else f"is {suffix}, no document; a source of `kind: code` takes it if it is text"
    if found.where == "here" or found.file_type == NOTEBOOK:
        return ""
    return f"is {found.file_type}, not text as it is; `vmrag import` takes it"


_NOTEBOOK_BYTES = 64_000_000
"""Bytes of a notebook, most of which are pictures that are discarded."""


def get_byte_limit(path: str, most: int) -> int:
    """Return how many bytes of a file are read. `most`: the bytes that may be indexed."""
    return max(most, _NOTEBOOK_BYTES) if path.lower().endswith(".ipynb") else most


def find_size_flaw(size: int, most: int) -> str:
    if not size:
        return "is empty"
    return f"has {size:,} bytes, more than {most:,}" if size > most else ""


def fold_path(path: str) -> str:
    """Equal for paths that a file system may take for one."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path.casefold())


def find_source(sources: Iterable[SourceSettings], path: str) -> SourceSettings | None:
    """The first source that names a path, which its name does not keep from being a document."""
    return next((source for source in sources if _takes(source, path)), None)


def is_named(source: SourceSettings, path: str) -> bool:
    """Whether a source names a path, whatever becomes of it then."""
    return path_matcher(source.paths)(path) and not path_matcher(source.exclude)(path)


def _takes(source: SourceSettings, path: str) -> bool:
    flaw = find_name_flaw(path) or find_kind_flaw(path, source.kind, by_hand=False)
    return is_named(source, path) and not flaw


@functools.lru_cache(maxsize=256)
def path_matcher(pathspecs: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that tells whether one of these names a path.

    Most are `**/*.md`: one comparison finds the endings of all.
    """
    endings = tuple(pathspec[len(_ANYWHERE) :] for pathspec in pathspecs if _is_ending(pathspec))
    others = tuple(pathspec for pathspec in pathspecs if not _is_ending(pathspec))
    return lambda path: path.endswith(endings) or any(_matches(each, path) for each in others)


_ANYWHERE = "**/*"


def _is_ending(pathspec: str) -> bool:
    rest = pathspec.removeprefix(_ANYWHERE)
    return rest != pathspec and not set(rest) & set("*?[\\/")


def _matches(pathspec: str, path: str) -> bool:
    """As git's `glob` magic has it: a folder means all that is in it."""
    below = f"{pathspec.rstrip('/')}/"
    if path == pathspec or path.startswith(below):
        return True
    return wildmatch.compile_pattern(pathspec).fullmatch(wildmatch.encode_path(path)) is not None


def exclude_notes(sources: Sequence[SourceSettings]) -> tuple[SourceSettings, ...]:
    """Return the sources with the folders of the writable ones excluded from all others, so that a
    note is a document once.
    """
    folders = tuple(f"{source.folder}/" for source in sources if source.write)
    return tuple(
        source if source.write or not folders else msgspec.structs.replace(source, exclude=(*source.exclude, *folders))
        for source in sources
    )


def select_sources_below(sources: Iterable[SourceSettings], folder: str) -> tuple[SourceSettings, ...]:
    """Return the sources with their paths as seen from a folder; without those that name nothing in
    it, and without those of notes.
    """
    seen = (
        msgspec.structs.replace(
            source, paths=_seen_below(source.paths, folder), exclude=_seen_below(source.exclude, folder)
        )
        for source in sources
        if not source.write
    )
    return tuple(source for source in seen if source.paths and "**" not in source.exclude)


def _seen_below(pathspecs: Iterable[str], folder: str) -> tuple[str, ...]:
    """Return pathspecs that name the same files, as seen from a folder."""
    rests = {(True, tuple(pathspec.split("/"))) for pathspec in pathspecs}
    for name in folder.split("/"):
        rests = {rest for is_literal, parts in rests for rest in _enter_folder(parts, name, is_literal=is_literal)}
    return tuple(sorted({_write_rest(parts, is_literal=is_literal) for is_literal, parts in rests}))


def _enter_folder(parts: tuple[str, ...], name: str, *, is_literal: bool) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """Yield what is left of a pathspec in a folder of this name, and if it was literal so far."""
    first, rest = parts[0], parts[1:]
    if first == "**":
        yield False, parts
        if rest:
            yield from _enter_folder(rest, name, is_literal=False)
    elif is_literal and first == name:  # a literal folder means all that is in it
        yield True, rest if rest and rest != ("",) else ("**",)
    elif rest and wildmatch.compile_pattern(first).fullmatch(wildmatch.encode_path(name)):
        yield False, rest


def _write_rest(parts: tuple[str, ...], *, is_literal: bool) -> str:
    """Return the pathspec. If it had wildcards, a bracket keeps it from meaning a folder."""
    text = "/".join(parts)
    return text if is_literal or set(text) & set("*?[") else re.sub(r"\w", r"[\g<0>]", text, count=1)


def searches_untracked(source: SourceSettings, *, untracked: bool) -> bool:
    """Return whether untracked files of a source are documents. `untracked`: the setting."""
    return untracked or source.write


def build_pathspecs(source: SourceSettings) -> list[str]:
    """Pathspecs as git's arguments after `--`: `*` stays within a folder, `**/` is any folder or
    none.
    """
    return [*build_included(source), *build_excluded(source)]


def build_included(source: SourceSettings) -> list[str]:
    """The first part of `arguments`: the files of the source."""
    return [f":(top,glob){path}" for path in source.paths]


def build_excluded(source: SourceSettings) -> list[str]:
    """The second part of `arguments`: the files that the source leaves out."""
    paths = source.exclude if source.paths else ("**",)  # without a path, git would take all
    return [f":(top,glob,exclude){path}" for path in paths]
