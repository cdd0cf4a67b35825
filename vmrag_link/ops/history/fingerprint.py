"""`vmrag fingerprint`: where it is equal, equal queries get equal answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link.errors import FileFailed, UsageInvalid, quoted
from vmrag_link.models import At, Record, Working
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.follow.follow_pin import sync_and_warn
from vmrag_link.ops.follow.provenance import require_pinned, standing
from vmrag_link.retrieval import fingerprint as retrieval
from vmrag_link.retrieval import fusion
from vmrag_link.retrieval.fusion import Ranking
from vmrag_link.trust import settings as trusted
from vmrag_link.workspace import Workspace

_HASH = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 64 * 1024


class FingerprintReport(Record, frozen=True):
    """`ranking`: the version and the settings that rank. Two programs of different versions rank
    equal documents differently, and their fingerprints differ.
    """

    fingerprint: str
    revision: str
    ranking: Ranking
    dirty: bool


class ComparedFingerprint(Record, frozen=True):
    """`differences`: what is known to differ, where the expected one says more than its hash."""

    expected: str
    equal: bool
    differences: tuple[str, ...]
    fingerprint: str
    revision: str
    ranking: Ranking
    dirty: bool


class ExpectedFingerprint(Record, frozen=True):
    """A hash; the rest if it came as `vmrag fingerprint --json` prints it."""

    fingerprint: str
    revision: str | None = None
    ranking: Ranking | None = None
    dirty: bool = False


def fingerprint(ws: Workspace, *, ref: str | None = None) -> FingerprintReport:
    """Of the workspace, uncommitted documents included, or of the revision that a git ref pins,
    ranked as its own settings say.
    """
    if ref is None:
        sync_and_warn(ws)
    at: At = ws.at() if ref is None else lazy_fetch.pinned_at(ws, ref)
    ranking = ws.ranking if ref is None else fusion.ranking(trusted.load_at(ws.places, ref).config.retrieval)
    value = retrieval.fingerprint(ranking, ws.engine.collections(at), ws.engine.headers(at))
    revision = at if isinstance(at, str) else ws.revision()
    return FingerprintReport(value, revision, ranking, dirty=isinstance(at, Working))


def compare(ws: Workspace, expected: ExpectedFingerprint, *, ref: str | None = None) -> ComparedFingerprint:
    """Compare with that of the pinned knowledge. Raises why that is not what is here: no other
    revision counts in its place.
    """
    found = fingerprint(ws, ref=ref)
    if ref is None:
        require_pinned(ws, standing(ws).notes)
    return ComparedFingerprint(
        expected.fingerprint,
        expected.fingerprint == found.fingerprint,
        tuple(_differences(expected, found)),
        found.fingerprint,
        found.revision,
        found.ranking,
        found.dirty,
    )


def expected_fingerprint(given: str, directory: Path) -> ExpectedFingerprint:
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
    except (msgspec.DecodeError, UnicodeDecodeError):
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
    if expected.dirty:
        yield "uncommitted documents were counted in when it was made; to make it again: vmrag fingerprint --json"
    if found.dirty:
        yield "uncommitted documents are counted in: vmrag diff"
