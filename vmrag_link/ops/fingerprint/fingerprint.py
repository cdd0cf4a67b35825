"""`vmrag fingerprint`: where it is equal, equal queries get equal answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link.errors import FileFailed, NotInitialized, PinMissing, UsageInvalid, quoted
from vmrag_link.git import plumbing
from vmrag_link.models import At, Record, WorkingSet
from vmrag_link.retrieval import fusion
from vmrag_link.retrieval.fusion import Ranking
from vmrag_link.sync.plan import read_rows_at
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.follow.provenance import RankedRevision, find_origin, ranked_at, require_pinned

_HASH = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 64 * 1024


class CountedFiles(Record, frozen=True):
    """Files of sources that are counted in: of this commit's tree or, where they are `uncommitted`,
    as they lie in the work tree, whose HEAD it is. None: before the first commit.
    """

    commit: str | None
    uncommitted: bool


class FingerprintReport(Record, frozen=True, omit_defaults=True):
    """`ranking`: the version and the settings that rank. Two programs of different versions rank
    equal documents differently, and their fingerprints differ. `files`: None without sources.
    """

    fingerprint: str
    revision: str
    ranking: Ranking
    dirty: bool
    files: CountedFiles | None = None


class ComparedFingerprint(Record, frozen=True, omit_defaults=True):
    """`differences`: what is known to differ, where the expected one says more than its hash."""

    expected: str
    equal: bool
    differences: tuple[str, ...]
    fingerprint: str
    revision: str
    ranking: Ranking
    dirty: bool
    files: CountedFiles | None = None


class ExpectedFingerprint(Record, frozen=True):
    """A hash; the rest if it came as `vmrag fingerprint --json` prints it."""

    fingerprint: str
    revision: str | None = None
    ranking: Ranking | None = None
    dirty: bool = False
    files: CountedFiles | None = None


def compute_fingerprint(ws: Workspace, *, ref: str | None = None, working: bool = False) -> FingerprintReport:
    """Of the workspace, uncommitted documents included, or of the revision that a git ref pins,
    ranked as its own settings say; with the files of sources of HEAD's or the ref's tree, or, where
    the workspace is `working`, as they lie in the work tree.

    Raises `SourcesIncomplete` where these cannot all be read here.
    """
    place = ranked_at(ws, ref) if ref is not None else None
    ranking = fusion.read_ranking(place.retrieval) if place else ws.ranking
    counted, files = _files(ws, place, working=working)
    of_files = FingerprintReport(
        fusion.compute_fingerprint(ranking, (), (), files=files), "", ranking, dirty=False, files=counted
    )
    if place and not place.revision:
        return of_files
    if ref is None:
        try:
            follow_and_warn(ws, index=True)
        except (NotInitialized, PinMissing):
            if not files:
                raise
            return of_files
    at: At = place.revision if place else ws.locate_documents()
    value = fusion.compute_fingerprint(
        ranking, read_rows_at(ws.engine, at).values(), ws.engine.read_headers(at), files=files
    )
    revision = at if isinstance(at, str) else ws.require_revision()
    return FingerprintReport(value, revision, ranking, dirty=isinstance(at, WorkingSet), files=counted)


def _files(ws: Workspace, place: RankedRevision | None, *, working: bool) -> tuple[CountedFiles | None, str]:
    """The files of sources, and what names their documents; None and nothing if there are none."""
    if place:
        commit, config = place.commit, place.config
    elif not ws.sources.configured:
        return None, ""
    else:
        commit = plumbing.read_head(ws.places).commit
        if working or commit is None:
            return CountedFiles(commit, uncommitted=True), ws.sources.read_contents().key
        config = ws.sources.read_config_at(commit)
    if not (commit and config and config.sources):
        return None, ""
    return CountedFiles(commit, uncommitted=False), ws.sources.read_contents_at(commit, config).key


def compare_fingerprint(ws: Workspace, expected: ExpectedFingerprint, *, ref: str | None = None) -> ComparedFingerprint:
    """Compare with that of the pinned knowledge. Raises why that is not what is here: no other
    revision counts in its place.
    """
    found = compute_fingerprint(ws, ref=ref)
    if ref is None:
        require_pinned(ws, find_origin(ws).notes)
    return ComparedFingerprint(
        expected.fingerprint,
        expected.fingerprint == found.fingerprint,
        tuple(_differences(expected, found)),
        **msgspec.structs.asdict(found),
    )


def read_expected(given: str, directory: Path) -> ExpectedFingerprint:
    """From a hash, or from a file with what `vmrag fingerprint` printed, with `--json` or without;
    its path counts from the directory. Raises `UsageInvalid`, `FileFailed`.
    """
    if _HASH.fullmatch(given):
        return ExpectedFingerprint(given)
    path = directory / given
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES)
    except OSError as error:
        raise FileFailed(
            f"{given} is no fingerprint, and cannot be read as a file that holds one: {error.strerror}.",
            hint=f"To make one: vmrag fingerprint --json > {quoted(given)}",
            path=str(path),
        ) from error
    text = content.decode(errors="replace").strip()
    if _HASH.fullmatch(text):
        return ExpectedFingerprint(text)
    try:
        found = msgspec.json.decode(content, type=ExpectedFingerprint)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = ExpectedFingerprint("")
    if not _HASH.fullmatch(found.fingerprint):
        raise UsageInvalid(
            f"{given} holds no fingerprint: 64 hexadecimal digits, or what `vmrag fingerprint --json` prints.",
            hint="To make one: vmrag fingerprint --json > fingerprint.json",
            path=str(path),
        )
    return found


def _differences(expected: ExpectedFingerprint, found: FingerprintReport) -> Iterator[str]:
    if expected.fingerprint == found.fingerprint:
        return
    if expected.ranking:
        for name in Ranking.__struct_fields__:
            before, after = getattr(expected.ranking, name), getattr(found.ranking, name)
            if before != after:
                yield f"ranking.{name} was {before} and is {after}"
    if expected.revision and expected.revision != found.revision:
        see = f"vmrag diff {quoted(expected.revision)} {found.revision}"
        yield f"the revision was {expected.revision[:7]} and is {found.revision[:7]}: {see}"
    before, now = expected.files, found.files
    if before and now and before.commit and now.commit and before.commit != now.commit:
        see = f"git diff --stat {quoted(before.commit)} {now.commit[:7]}"
        yield f"the files were those of commit {before.commit[:7]} and are those of {now.commit[:7]}: {see}"
    if expected.dirty:
        yield "uncommitted documents were counted in when it was made; to make it again: vmrag fingerprint --json"
    if found.dirty:
        yield "uncommitted documents are counted in: vmrag diff"
