"""The narration of the demo, apart from its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vmrag_link.demo.answers import QueryAnswer


class Narrator(Protocol):
    def chapter(self, title: str, text: str = "") -> None:
        """A part begins."""

    def command(self, line: str) -> None:
        """A command starts; what it says follows."""

    def output(self, lines: Sequence[str], seconds: float) -> None:
        """What the command said, and how long it took."""

    def work(self, what: str, seconds: float) -> None:
        """The demo did something itself."""

    def answer(self, answer: QueryAnswer) -> None:
        """What a query found."""

    def remark(self, line: str) -> None:
        """A sentence about what was just seen."""


class Silent:
    """Tells nothing: for programs."""

    def chapter(self, title: str, text: str = "") -> None:
        pass

    def command(self, line: str) -> None:
        pass

    def output(self, lines: Sequence[str], seconds: float) -> None:
        pass

    def work(self, what: str, seconds: float) -> None:
        pass

    def answer(self, answer: QueryAnswer) -> None:
        pass

    def remark(self, line: str) -> None:
        pass


SILENT: Narrator = Silent()
