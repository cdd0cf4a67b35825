"""A report whose documents are read one by one, as often as somebody asks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Self

import msgspec

from vmrag_link.ops.report.records import FullReport, ReportedDocument, ReportSummary

_IN_MEMORY = 8 * 1024 * 1024
"""Bytes of documents; more of them lie in a file without a name."""

_LENGTH = 8


class Spool:
    """Reported documents aside, one behind the other."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  it lives as long as the report

    def add(self, document: ReportedDocument) -> None:
        data = msgspec.json.encode(document)
        self._file.write(len(data).to_bytes(_LENGTH) + data)

    def read(self) -> Iterator[ReportedDocument]:
        """In the order in which they came, each time from the first."""
        at = 0
        while True:
            self._file.seek(at)
            length = int.from_bytes(self._file.read(_LENGTH))
            if not length:
                return
            data = self._file.read(length)
            at = self._file.tell()
            yield msgspec.json.decode(data, type=ReportedDocument)

    def close(self) -> None:
        self._file.close()


class KnowledgeReport:
    """What the terminal, Markdown and HTML show: facts in `summary`, texts in `documents`.

    Its memory does not grow with the texts. Close it.
    """

    def __init__(self, summary: ReportSummary, spool: Spool) -> None:
        self.summary = summary
        self._spool = spool

    def documents(self) -> Iterator[ReportedDocument]:
        """In the order of `summary.documents`, afresh each time."""
        return self._spool.read()

    def full(self) -> FullReport:
        """All of it in memory."""
        return FullReport(self.summary, list(self.documents()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()
