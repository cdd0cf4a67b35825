"""Options of a check that write its findings for a CI service."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import Record

if TYPE_CHECKING:
    from vmrag_link.ops.case_files.cases import CaseList

_HELP = {
    "junit": "Write JUnit's XML, which most CI services show as tests.",
    "sarif": "Write SARIF 2.1.0, for GitHub's code scanning.",
    "code_quality": "Write GitLab's Code Quality report.",
}
_STDOUT = Path("-")


class CaseFiles(Record, frozen=True):
    """The files by their formats.

    `-` is standard output, which then contains nothing else.
    """

    paths: dict[str, Path]

    def require_writable(self, invocation: Invocation) -> None:
        """Raise an error if a file cannot be written, before the check begins.

        Raises `UsageInvalid` and `FileFailed`.
        """
        if [*self.paths.values()].count(_STDOUT) + invocation.as_json > 1:
            raise UsageInvalid("only one format can go to standard output.", hint="use a file name instead of `-`")
        if self.paths:
            from vmrag_link.ops.report.files import require_writable_path

            for path in self.paths.values():
                if path != _STDOUT:
                    require_writable_path(invocation.directory / path, invocation.directory)

    def write_files(
        self, invocation: Invocation, report: Any, lines: Iterable[str], list_cases: Callable[[], CaseList]
    ) -> None:
        """Write the files, and print the other output of the command."""
        if not self.paths:
            invocation.emit_report(report, lines)
            return
        from vmrag_link.ops.case_files.case_formats import FORMATS
        from vmrag_link.ops.report.files import write_text

        cases = list_cases()
        for name, path in self.paths.items():
            if path != _STDOUT:
                write_text(invocation.directory / path, [FORMATS[name](cases)])
        shown = [name for name, path in self.paths.items() if path == _STDOUT]
        if shown:
            output.print_exactly(FORMATS[shown[0]](cases))
        else:
            invocation.emit_report(report, lines)


def _refuse_tap(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise UsageInvalid("'--tap' was removed.", hint="use '--junit FILE', which test reporters also read")


def case_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each format; together they are `files` of the function."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        paths = {name: path for name in _HELP if (path := keywords.pop(name))}
        return function(*arguments, files=CaseFiles(paths), **keywords)

    decorated = click.option("--tap", hidden=True, expose_value=False, callback=_refuse_tap, help="Removed.")(wrapped)
    for name, about in reversed(_HELP.items()):
        option = click.option(
            f"--{name.replace('_', '-')}", type=click.Path(path_type=Path), metavar="FILE", help=about
        )
        decorated = option(decorated)
    return decorated
