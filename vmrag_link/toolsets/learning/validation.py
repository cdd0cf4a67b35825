"""Combine evidence of several kinds into one score, and write it to a file if an agent requests
that.

An agent can have the path from an untrusted text. The file must therefore have a name that no other
program reads, and only an earlier result is overwritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from vmrag_link.errors import JsonInvalid, NothingSelected, UsageInvalid, file_failures
from vmrag_link.file_access import read_regular, write_atomically
from vmrag_link.models import At, Record, encode_canonical_json, format_json, parse_user_json
from vmrag_link.ops.stores import stores
from vmrag_link.toolsets.learning import evidence_records as evidence
from vmrag_link.toolsets.learning import quality_checks, runs, runtime_errors
from vmrag_link.toolsets.learning.evidence_records import Evidence, EvidenceItem, split_names
from vmrag_link.toolsets.learning.tool_output import COVERAGE
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import named_files as files
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.named_files import NamedFile
from vmrag_link.workspace.documents.writing import Planned, WriteResult

VALIDATION = "validation"

_STATUSES = {"passed": "pass", "failed": "fail"}
"""Other names of outcomes."""

_KINDS = {runs.TYPE: "test_transitions", runtime_errors.TYPE: "runtime_errors", quality_checks.TYPE: "code_quality"}


class FileTransition(Record, frozen=True):
    test_id: str
    before_status: str
    after_status: str


class FileError(Record, frozen=True):
    error_type: str
    error_message: str = ""
    resolution: str = ""
    resolution_verified: bool = False


class FileCheck(Record, frozen=True):
    tool: str
    before_value: float
    after_value: float


class EvidenceFile(Record, frozen=True):
    """Evidence that a person or a program writes as JSON."""

    test_transitions: tuple[FileTransition, ...] = ()
    runtime_errors: tuple[FileError, ...] = ()
    code_quality: tuple[FileCheck, ...] = ()
    regressions: tuple[str, ...] = ()


class ValidationRequest(Record, frozen=True):
    """Ids of evidence, or lists of ids separated by commas. `output` is the path for the result."""

    evidence_file: NamedFile | None = None
    test_transitions: Sequence[str] = ()
    runtime_errors: Sequence[str] = ()
    code_quality: Sequence[str] = ()
    threshold: float = evidence.THRESHOLD
    output: Path | None = None


class EvidenceCounts(Record, frozen=True):
    test_transitions: int
    runtime_errors: int
    code_quality: int
    regressions: int


class ValidationReport(Record, frozen=True):
    """A score. `output_file` is the absolute path; None without a file."""

    score: float
    threshold: float
    meets_threshold: bool
    evidence_types: list[str]
    counts: EvidenceCounts
    evidence_id: str
    output_file: str | None


def validate_evidence(ws: Workspace, request: ValidationRequest) -> WriteResult[ValidationReport]:
    """Score evidence, and store the score, with which a learning can be promoted.

    Raises `NothingSelected`, `DocumentMissing`, `JsonInvalid` for the file, `FileFailed` if the
    result cannot be written, and the errors of `named_files.read_file`, `stores.prepare_write` and
    `write_rows`.
    """
    ids = split_names([*request.test_transitions, *request.runtime_errors, *request.code_quality])
    if not ids and request.evidence_file is None:
        raise NothingSelected(
            "no evidence is given.",
            hint="name the ids that log-test-results, log-error and log-quality-check printed, or a file of evidence",
        )
    of_file = _parse_file(ws, request.evidence_file) if request.evidence_file else Evidence()
    doc_id = evidence.create_id()
    output = str(request.output) if request.output else None

    store = stores.find_tools_store(ws)

    def plan_record(at: At) -> Planned[ValidationReport]:
        whole = evidence.merge_evidence([*evidence.find_evidence(store, at, ids).values(), of_file])
        numbers = {name: sum(item.type == kind for item in whole.items) for kind, name in _KINDS.items()}
        report = ValidationReport(
            score=whole.score,
            threshold=request.threshold,
            meets_threshold=whole.score >= request.threshold,
            evidence_types=whole.types,
            counts=EvidenceCounts(**numbers, regressions=len(whole.regressions)),
            evidence_id=doc_id,
            output_file=output,
        )
        collection, new = stores.find_or_define(store, at, stores.EVIDENCE)
        counted = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in numbers.items())
        text = f"Evidence with the score {whole.score:g}: {counted}"
        row = evidence.build_record(
            collection.name, doc_id, text, VALIDATION, whole, threshold=request.threshold, ids=ids
        )
        return Planned(stores.prepare_write(store, [stores.CollectionPut(collection, new, [row])]), report)

    written = writing.write_rows(store, plan_record, "write down a validation")
    if request.output:
        with file_failures():
            write_atomically(request.output, format_json(written.report).encode() + b"\n")
    return written


def _parse_file(ws: Workspace, file: NamedFile) -> Evidence:
    """Return the evidence of a file. Raises `JsonInvalid`."""
    source = files.read_file(ws, file)
    try:
        parsed = msgspec.convert(parse_user_json(source.data.decode()), type=EvidenceFile)
    except (ValueError, msgspec.ValidationError) as error:
        raise JsonInvalid(
            f"{source.name} is not a valid file of evidence: {error}.",
            hint="see the example in docs/toolsets.md",
            parameter="evidence_file",
            value=source.key,
        ) from None
    return Evidence(tuple(_list_items(parsed)), parsed.regressions)


def _list_items(evidence_file: EvidenceFile) -> Iterator[EvidenceItem]:
    for test in evidence_file.test_transitions:
        before = _STATUSES.get(test.before_status, test.before_status)
        after = _STATUSES.get(test.after_status, test.after_status)
        yield _build_item(test, runs.TYPE, evidence.weigh_transition(before, after))
    for error in evidence_file.runtime_errors:
        weight = evidence.weigh_resolution(error.resolution, verified=error.resolution_verified)
        yield _build_item(error, runtime_errors.TYPE, weight)
    for check in evidence_file.code_quality:
        points = check.tool == COVERAGE
        better = evidence.compute_improvement(check.before_value, check.after_value, points=points)
        yield _build_item(check, quality_checks.TYPE, evidence.weigh_check(better, points=points))


def _build_item(row: Record, kind: evidence.EvidenceType, weight: float) -> EvidenceItem:
    """Return an item. Its id is derived from its content, so the same file counts once."""
    return EvidenceItem(hashlib.sha256(encode_canonical_json(row).encode()).hexdigest()[:32], kind, weight)


ENDING = "evidence.json"

_MAX_RESULT_BYTES = 1_000_000
"""Maximum number of bytes of an existing result."""


def find_output_file(ws: Workspace, path: str) -> Path:
    """Return the file for the result.

    Raises `UsageInvalid`, and the `AccessDenied` of `find_file`.

    Its folder must exist, and no part of its path can begin with a dot.
    """
    place = files.find_file(ws, path)
    hidden = any(part.startswith(".") for part in Path(files.key_of(ws.places, place)).parts)
    if not place.path.name.endswith(ENDING) or hidden or place.path != place.target:
        raise _build_refusal(
            path, f"its name must end in {ENDING}, outside folders that begin with a dot, and it must not be a link"
        )
    if not place.path.parent.is_dir():
        raise _build_refusal(path, "its folder does not exist")
    if place.path.exists() and not _is_result(place.path):
        raise _build_refusal(path, "it already exists with other contents")
    return place.path


def _is_result(path: Path) -> bool:
    try:
        result = parse_user_json(read_regular(path, _MAX_RESULT_BYTES).decode())
    except ValueError:
        return False
    return isinstance(result, dict) and "evidence_id" in result


def _build_refusal(path: str, why: str) -> UsageInvalid:
    return UsageInvalid(
        f"{path!r} is not written: {why}.",
        hint=f"use a file with evidence, such as {ENDING}",
        parameter="output_file",
        value=path,
    )
