"""Compute a fingerprint: `vmrag fingerprint`.

With equal fingerprints, equal queries have equal answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link import hints
from vmrag_link.errors import FileFailed, NotInitialized, PinMissing, UsageInvalid, quoted
from vmrag_link.git import plumbing
from vmrag_link.models import At, Record, WorkingSet
from vmrag_link.retrieval.ranking import Ranking, hash_contents, read_ranking
from vmrag_link.sync.plan import read_rows_at
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.follow.provenance import find_origin, require_pinned
from vmrag_link.workspace.follow.search_scope import RankedRevision, ranked_at

_HASH = re.compile(r"[0-9a-f]{64}")
_MAX_FILE_BYTES = 64 * 1024


class CountedFiles(Record, frozen=True):
    """The files of sources that a fingerprint includes."""

    commit: str | None
    """The commit of the files, or HEAD of the work tree; None before the first commit."""
    uncommitted: bool
    """True for the files of the work tree."""


class FingerprintReport(Record, frozen=True, omit_defaults=True):
    """A fingerprint."""

    fingerprint: str
    revision: str
    ranking: Ranking
    """The version and the settings of the ranking. Programs of different versions rank differently,
    so their fingerprints differ.
    """
    dirty: bool
    files: CountedFiles | None = None
    """None without sources."""


class ComparedFingerprint(Record, frozen=True, omit_defaults=True):
    """A fingerprint compared with an expected one."""

    expected: str
    equal: bool
    differences: tuple[str, ...]
    """The known differences, if the expected fingerprint has more than its hash."""
    fingerprint: str
    revision: str
    ranking: Ranking
    dirty: bool
    files: CountedFiles | None = None


class ExpectedFingerprint(Record, frozen=True):
    """An expected hash. The other fields are those of `vmrag fingerprint --json`, if given."""

    fingerprint: str
    revision: str | None = None
    ranking: Ranking | None = None
    dirty: bool = False
    files: CountedFiles | None = None


def compute_fingerprint(ws: Workspace, *, ref: str | None = None, working: bool = False) -> FingerprintReport:
    """Compute the fingerprint of the workspace, or of the revision that a git ref pins.

    The workspace includes uncommitted documents. A ref is ranked with its own settings. Files of
    sources are those of HEAD or of the ref, or those of the work tree with `working`. Raises
    `SourcesIncomplete` if not all of them can be read here.
    """
    place = ranked_at(ws, ref) if ref is not None else None
    ranking = read_ranking(place.retrieval) if place else ws.ranking
    files, files_key = _find_files(ws, place, working=working)
    without_documents = FingerprintReport(
        fingerprint=hash_contents(ranking, (), (), files=files_key),
        revision="",
        ranking=ranking,
        dirty=False,
        files=files,
    )
    if place and not place.revision:
        return without_documents
    if ref is None:
        try:
            follow_and_warn(ws, index=True)
        except (NotInitialized, PinMissing):
            if not files_key:
                raise
            return without_documents
    at: At = place.revision if place else ws.locate_documents()
    collections = read_rows_at(ws.engine, at).values()
    return FingerprintReport(
        fingerprint=hash_contents(ranking, collections, ws.engine.read_headers(at), files=files_key),
        revision=at if isinstance(at, str) else ws.require_revision(),
        ranking=ranking,
        dirty=isinstance(at, WorkingSet),
        files=files,
    )


def _find_files(ws: Workspace, place: RankedRevision | None, *, working: bool) -> tuple[CountedFiles | None, str]:
    """Return the files of sources and the key of their documents; None and "" without sources."""
    if place:
        commit = place.commit
        config = place.config
    elif not ws.sources.configured:
        return None, ""
    else:
        commit = plumbing.read_head(ws.places).commit
        if working or commit is None:
            return CountedFiles(commit, uncommitted=True), ws.source_index.read_contents().key
        config = ws.sources.read_config_at(commit)
    if not (commit and config and config.sources):
        return None, ""
    return CountedFiles(commit, uncommitted=False), ws.source_index.read_contents_at(commit, config).key


def compare_fingerprint(ws: Workspace, expected: ExpectedFingerprint, *, ref: str | None = None) -> ComparedFingerprint:
    """Compare the fingerprint of the pinned documents with an expected one.

    Raises the reason if the documents are not those of the pinned revision.
    """
    present = compute_fingerprint(ws, ref=ref)
    if ref is None and present.revision:  # files alone need no pin
        require_pinned(ws, find_origin(ws).notes)
    return ComparedFingerprint(
        expected=expected.fingerprint,
        equal=expected.fingerprint == present.fingerprint,
        differences=tuple(_list_differences(expected, present)),
        **msgspec.structs.asdict(present),
    )


def read_expected(hash_or_path: str, directory: Path) -> ExpectedFingerprint:
    """Return an expected fingerprint from a hash or a file.

    The file has the output of `vmrag fingerprint`, with or without `--json`. Its path is relative
    to the directory. Raises `UsageInvalid` and `FileFailed`.
    """
    if _HASH.fullmatch(hash_or_path):
        return ExpectedFingerprint(hash_or_path)
    path = directory / hash_or_path
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES)
    except OSError as error:
        raise FileFailed(
            f"{hash_or_path} is neither a fingerprint nor a readable file: {error.strerror}.",
            hint=f"run 'vmrag fingerprint --json > {quoted(hash_or_path)}' to create one",
            path=str(path),
        ) from error
    text = content.decode(errors="replace").strip()
    if _HASH.fullmatch(text):
        return ExpectedFingerprint(text)
    try:
        expected = msgspec.json.decode(content, type=ExpectedFingerprint)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        expected = ExpectedFingerprint("")
    if not _HASH.fullmatch(expected.fingerprint):
        raise UsageInvalid(
            f"{hash_or_path} has no fingerprint (64 hexadecimal digits, or the output of 'vmrag fingerprint --json').",
            hint="run 'vmrag fingerprint --json > fingerprint.json' to create one",
            path=str(path),
        )
    return expected


def _list_differences(expected: ExpectedFingerprint, present: FingerprintReport) -> Iterator[str]:
    if expected.fingerprint == present.fingerprint:
        return
    if expected.ranking:
        for name in Ranking.__struct_fields__:
            before = getattr(expected.ranking, name)
            after = getattr(present.ranking, name)
            if before != after:
                yield f"ranking.{name} was {before} and is {after}"
    if expected.revision and expected.revision != present.revision:
        command = f"vmrag diff {quoted(expected.revision)} {present.revision}"
        statement = f"the revision was {expected.revision[:7]} and is {present.revision[:7]}"
        yield hints.append_to(statement, hints.suggest_command(command, "see the difference"))
    commit_before = expected.files.commit if expected.files else None
    commit = present.files.commit if present.files else None
    if commit_before and commit and commit_before != commit:
        command = f"git diff --stat {quoted(commit_before)} {commit[:7]}"
        statement = f"the files were those of commit {commit_before[:7]} and are those of {commit[:7]}"
        yield hints.append_to(statement, hints.suggest_command(command, "see the difference"))
    if expected.dirty:
        yield "it included uncommitted documents; run 'vmrag fingerprint --json' to compute it again"
    if present.dirty:
        yield "the present fingerprint includes uncommitted documents; run 'vmrag diff' to list them"
