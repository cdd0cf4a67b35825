"""`vmrag sources add`: files of the repository become documents, by an entry in `.vmrag.yaml`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from vmrag_link import config, locks, settings_docs, settings_edit
from vmrag_link.code import languages
from vmrag_link.conversion import formats
from vmrag_link.documents import import_base
from vmrag_link.errors import ConfigInvalid, NotInitialized, PinError, UsageInvalid, quoted
from vmrag_link.file_access import require_files, write_atomically
from vmrag_link.formats import SOURCES_VERSION
from vmrag_link.git import listing, staging, versions
from vmrag_link.models import SYSTEM, WITHOUT_FILES, Record
from vmrag_link.ops import trust
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.settings import SourceSettings
from vmrag_link.settings import file as settings_file
from vmrag_link.settings.entries import MAX_BYTES
from vmrag_link.settings.flaws import NOTES_FOLDER, pathspec_flaw, sources_flaw
from vmrag_link.sources import proposal, rules
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections

Kind = Literal["document", "code"]

_WILDCARDS = "*?["


class SourceAddition(Record, frozen=True):
    """A change of `sources` in `.vmrag.yaml`."""

    collection: str
    kind: Kind
    paths: tuple[str, ...]
    """The pathspecs that the source has now and did not have before."""
    created: bool
    """True for a new source."""
    files: int
    """Number of files that git tracks and that the paths make documents."""
    staged: bool
    """True if git's index has the changed file."""
    stored: bool
    """True if the knowledge base stores a collection of that name, which answers instead."""
    requires: str
    """The version of vmrag-link that the file requires only now. Empty for none."""
    unavailable: str
    """Why the source cannot be read on this machine; empty if it can."""
    write: bool = False
    """True for a source to whose folder vmrag writes notes."""


def add_source(
    ws: Workspace, folder: Path, paths: Sequence[str], *, collection: str | None = None, kind: Kind | None = None
) -> SourceAddition:
    """Add paths to the source of a collection, or to a new source.

    The paths and patterns are those that a person typed in `folder`. By default, they are added to
    the first source of their kind. Raises `UsageInvalid` for a path without a file that the source
    can read, and for a name that a source cannot have; `ConfigInvalid` for settings that cannot be
    edited.
    """
    _require_editable(ws)
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="sources", timeout=ws.lock_timeout):
        ws.reload_settings()
        target = _find_target(ws, collection, kind)
        stored = _is_stored(ws, target.collection)
        tracked = listing.list_tracked_files(ws.places)
        files: set[str] = set()
        pathspecs: dict[str, None] = {}
        for path in paths:
            pathspec = _form_pathspec(ws, folder, path)
            matches = _find_files(ws, target, path, pathspec, tracked)
            if not matches or not all(rules.is_named(target, file) for file in matches):
                pathspecs[pathspec] = None
            files.update(matches)
        new = tuple(pathspec for pathspec in pathspecs if pathspec not in target.paths)
        required = ws.config.requires
        if new:
            staged = write_source(ws, SourceSettings(target.collection, new, (), target.kind))
        else:
            staged = not versions.has_unstaged_changes(ws.places, CONFIG_NAME)
    return SourceAddition(
        collection=target.collection,
        kind=target.kind,
        paths=new,
        created=not target.paths,
        files=len(files),
        staged=staged,
        stored=stored,
        requires=ws.config.requires if ws.config.requires != required else "",
        unavailable=languages.find_source_problem((*target.paths, *new)) if target.kind == "code" else "",
    )


def add_writable_source(ws: Workspace, folder: Path, path: str, *, collection: str) -> SourceAddition:
    """Add a source to whose folder notes are written, and trust it. The folder may not exist yet.

    Raises `UsageInvalid` for a path that is not a folder, and for a collection that a source or the
    knowledge base has; `ConfigInvalid` for settings that cannot be edited.
    """
    _require_editable(ws)
    collections.require_name(collection)
    spec = _form_pathspec(ws, folder, path)
    target = ws.places.top / spec
    if set(spec) & set(_WILDCARDS) or (os.path.lexists(target) and not target.is_dir()):
        raise UsageInvalid(f"{path} is not a folder.", hint=f"run 'vmrag sources add --write {quoted(NOTES_FOLDER)}'")
    source = SourceSettings(collection, (f"{spec.rstrip('/')}/",), write=True)
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="sources", timeout=ws.lock_timeout):
        ws.reload_settings()
        required = ws.config.requires
        present = next((entry for entry in ws.config.sources if entry.collection == collection), None)
        if present and (present.folder, present.write) != (source.folder, True):
            raise UsageInvalid(
                f"the source {collection!r} exists with other files.",
                hint=f"run 'vmrag sources add --write {quoted(path)} --collection NAME'",
            )
        if collection in ws.list_stored_collections():
            raise UsageInvalid(
                f"the knowledge base stores the collection {collection!r}.",
                hint=f"run 'vmrag move {quoted(collection)} --to files'",
            )
        staged = not versions.has_unstaged_changes(ws.places, CONFIG_NAME) if present else write_source(ws, source)
    trust.trust_source(ws, source)
    tracked = listing.list_tracked_files(ws.places)
    files = sum(rules.is_named(source, file) and not rules.find_name_flaw(file) for file in tracked)
    return SourceAddition(
        collection=collection,
        kind="document",
        paths=() if present else source.paths,
        created=not present,
        files=files,
        staged=staged,
        stored=False,
        requires=ws.config.requires if ws.config.requires != required else "",
        unavailable="",
        write=True,
    )


def _require_editable(ws: Workspace) -> None:
    """Raise `ConfigInvalid` if the sources of the settings file cannot be edited."""
    require_files(ws.places.config)
    if "sources" in ws.settings.loaded.machine:
        raise ConfigInvalid(
            f"the environment or git config sets the sources, so the sources in {CONFIG_NAME} have no effect.",
            hint="run 'unset VMRAG_SOURCES && git config --unset vmrag.sources'",
        )


def _find_target(ws: Workspace, collection: str | None, kind: Kind | None) -> SourceSettings:
    """Return the source that the paths go into; a new one has no paths yet."""
    sources = ws.config.sources
    if collection is None:
        of_kind = kind or "document"
        names = {*ws.list_stored_collections(), *(source.collection for source in sources)}
        new = next((name for name in proposal.NAMES[of_kind] if name not in names), "files")
        target = next((source for source in sources if source.kind == of_kind and not source.write), None)
        return target or SourceSettings(new, (), (), of_kind)
    collections.require_name(collection)
    target = next((source for source in sources if source.collection == collection), None)
    if target and kind and target.kind != kind:
        raise UsageInvalid(
            f"the source {collection!r} has files of the kind {target.kind!r}.",
            hint=f"run 'vmrag sources add PATH --kind {kind} --collection {quoted(f'{collection}-{kind}')}'",
        )
    return target or SourceSettings(collection, (), (), kind or "document")


def _is_stored(ws: Workspace, name: str) -> bool:
    """Return whether the knowledge base stores this collection.

    Raises `UsageInvalid` for a collection that cannot become a source.
    """
    if not ws.is_initialized:
        return False
    with suppress(NotInitialized, PinError):
        row = collections.find_exact(ws, ws.locate_documents(), name)
        if row and row.kind in (*WITHOUT_FILES, SYSTEM):
            raise UsageInvalid(
                f"the collection {name!r} cannot be a source: it is stored as {row.kind}.",
                hint=f"run 'vmrag sources add PATH --collection {quoted(f'{name}-files')}'",
            )
        return row is not None
    return False


def _form_pathspec(ws: Workspace, folder: Path, typed: str) -> str:
    """Return what the settings file states for a path or a pattern, from the top."""
    top = import_base.locate_path(ws.places.top)
    path = folder / typed
    exists = os.path.lexists(path)
    if exists:
        full = Path(os.path.normpath(import_base.locate_path(path)))
    else:  # follow the links in front of the first wildcard
        wildcards = (number for number, part in enumerate(path.parts) if set(part) & set(_WILDCARDS))
        first = next(wildcards, len(path.parts) - 1)
        full = Path(os.path.normpath(Path(os.path.realpath(Path(*path.parts[:first])), *path.parts[first:])))
    if not full.is_relative_to(top):
        raise UsageInvalid(
            f"{typed} is outside the repository.",
            hint=f"run 'vmrag import {quoted(typed)} --collection NAME --base {quoted(Path(typed).parent)}'",
        )
    spec = full.relative_to(top).as_posix()
    if exists and set(spec) & set(_WILDCARDS):
        for sign in (*_WILDCARDS, "]"):
            spec = spec.replace(sign, "?")  # a pathspec cannot quote them
        spec += "/**" if full.is_dir() else ""
    elif spec == ".":
        spec = "**"
    elif exists and full.is_dir():
        spec += "/"
    flaw = pathspec_flaw(spec)
    if flaw:
        raise UsageInvalid(f"{spec} {flaw}.", hint="run 'vmrag sources add docs/'")
    return spec


def _find_files(ws: Workspace, target: SourceSettings, typed: str, pathspec: str, tracked: Sequence[str]) -> list[str]:
    """Return the tracked files that a path makes documents. Raises `UsageInvalid` for none."""
    whole = SourceSettings(target.collection, (pathspec,), (), target.kind)
    matches = [path for path in tracked if rules.is_named(whole, path)]
    if not matches and ws.config.searches_untracked:
        return []
    if not matches:
        exists = (ws.places.top / pathspec).exists()
        hint = f"run 'git add {quoted(typed)}' to track it" if exists else "check the path, and put a pattern in quotes"
        raise UsageInvalid(f"git tracks no file that {pathspec} names.", hint=hint)
    flaws = {
        path: rules.find_name_flaw(path) or rules.find_kind_flaw(path, target.kind, is_handwritten=False)
        for path in matches
    }
    readable = [path for path, flaw in flaws.items() if not flaw]
    if not readable:
        hint = f"run 'vmrag import {quoted(typed)} --collection NAME'"
        if target.kind == "document" and any(formats.find_by_suffix(path) is None for path in matches):
            hint = f"run 'vmrag sources add {quoted(typed)} --kind code'"
        raise UsageInvalid(
            f"no source of the kind {target.kind!r} can read {matches[0]}: it {flaws[matches[0]]}.", hint=hint
        )
    limited = msgspec.structs.replace(whole, exclude=target.exclude)
    files = [path for path in readable if rules.is_named(limited, path)]
    if not files:
        raise UsageInvalid(
            f"the source {target.collection!r} excludes {readable[0]}.",
            hint=f"delete the pattern from `exclude` of {target.collection!r} in {CONFIG_NAME}, or choose another "
            "--collection",
        )
    return files


def write_source(ws: Workspace, source: SourceSettings) -> bool:
    """Write the paths of a source into the settings file; return whether it is staged.

    A file with changes that git has not staged is left to the user.
    """
    before = config.read_settings_file(ws.places.config)
    text = settings_docs.format_template().encode() if before is None else before
    written = settings_edit.add_source(settings_edit.set_requirement(text, SOURCES_VERSION), source)
    if len(written) > MAX_BYTES:
        raise ConfigInvalid(
            f"{CONFIG_NAME} would have more than {MAX_BYTES} bytes.",
            hint="run 'vmrag sources add DIR' with a folder instead of its files",
        )
    stated = next(entry for entry in settings_file.read_entries(written, CONFIG_NAME) if entry.key == "sources")
    flaw = sources_flaw(msgspec.json.decode(stated.text or "[]"))
    if flaw:
        raise UsageInvalid(f"sources {flaw}.", hint="run 'vmrag sources add DIR' with a folder instead of its files")
    stageable = before is None or not versions.has_unstaged_changes(ws.places, CONFIG_NAME)
    write_atomically(ws.places.config, written)
    ws.reload_settings()
    return stageable and staging.stage_path(ws.places, ws.places.config)
