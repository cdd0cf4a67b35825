"""Whether to trust a view and its segments: format and seals.

A checkout asks that of indexes that are there, and loads no more than this needs.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from vmrag_link.errors import IndexFailed
from vmrag_link.index import seal
from vmrag_link.index import view as views
from vmrag_link.index.view import IndexView
from vmrag_link.models import canonical_json

FORMAT = "5"
"""Rises with every change of what lies in an index directory, of how texts are cut, and of a model
that takes a former one's place (`embedding.successors`).

Where answers change with it, `retrieval.fusion.VERSION` rises, too.
"""


def directory_suffix(**decisive: object) -> str:
    """Eight hex digits of what decides a directory besides a revision's own rows: the format, and
    `decisive` values.

    The rows name models, chunking and distances. A checksum suffices for the few possible values,
    and saves every checkout from loading cryptography.
    """
    return f"{zlib.crc32(canonical_json({'format': FORMAT, **decisive}).encode()):08x}"


SUFFIX = directory_suffix()
"""Of the directories of indexes."""


def segments_beside(view: Path) -> Path:
    """The folder of the segments that a view counts."""
    return view.parent.parent / "segments"


def problem_of(folder: Path, *, revision: str) -> str:
    """Why a view must not be served; empty if it and its segments verify.

    Reads a few small files, and contents of segments only where `seal` says that this is due.
    """
    view, problem = _view(folder, revision)
    if view is None:
        return problem
    return next(iter(_problems(folder, view, seal.problem).values()), "")


def problem_of_view(folder: Path, *, revision: str) -> str:
    """As `problem_of`, of the view alone."""
    return _view(folder, revision)[1]


def _view(folder: Path, revision: str) -> tuple[IndexView | None, str]:
    """The view, if it is as it was sealed, or what is wrong with it."""
    sealed, problem = _sealed(folder, revision)
    if problem or (problem := seal.problem(folder)):
        return None, problem
    try:
        view = views.read(folder)
    except IndexFailed as error:  # it is being removed
        return None, error.message.rstrip(".")
    if {part.segment for part in view.parts} != sealed.keys():  # which no checksum covers
        return None, f"{seal.SEAL} names other segments than it counts"
    return view, ""


def _sealed(folder: Path, revision: str) -> tuple[Mapping[str, int], str]:
    """The segments that a view's seal names, or what is wrong with it."""
    if not folder.is_dir():
        return {}, "it is not there"
    try:
        found = seal.read(folder)
    except FileNotFoundError:
        return {}, "it was never finished" if folder.is_dir() else "it is being removed"
    except (IsADirectoryError, UnicodeDecodeError, msgspec.DecodeError) as error:
        return {}, f"{seal.SEAL} cannot be read ({error})"
    wanted = (found.format, found.revision) == (FORMAT, revision)
    return found.segments, "" if wanted else f"it was sealed as revision {found.revision} in format {found.format}"


def damaged_segments(folder: Path) -> dict[str, str]:
    """What is wrong with the segments that a view counts, by name. Raises `IndexFailed`."""
    return _problems(folder, views.read(folder), seal.problem)


def mismatch(folder: Path, looked: dict[str, str] | None = None) -> str:
    """Why a view that has a seal must not be served, with every byte of its segments read.

    `looked`: what is known of segments by now, and found here, by name.
    """
    known = {} if looked is None else looked

    def look(segment: Path) -> str:
        if segment.name not in known:
            known[segment.name] = seal.mismatch(segment)
        return known[segment.name]

    if problem := seal.mismatch(folder):
        return problem
    try:
        return next(iter(_problems(folder, views.read(folder), look).values()), "")
    except IndexFailed as error:
        return error.message.rstrip(".")


def distrust(folder: Path) -> None:
    """From now on every byte of a view is looked at before it is served."""
    seal.distrust(folder)
    with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):
        for name in seal.read(folder).segments:
            seal.distrust(segments_beside(folder) / name)


def _problems(folder: Path, view: IndexView, look: Callable[[Path], str]) -> dict[str, str]:
    root = segments_beside(folder)
    problems = {part.segment: look(root / part.segment) for part in view.parts}
    return {name: problem for name, problem in problems.items() if problem}
