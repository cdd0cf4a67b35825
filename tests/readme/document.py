"""Draw the pictures of README.md from a real session: `python -m tests.readme.document`.

The session checks out two commits and asks the same question at both. Each picture is one file for
light and one for dark pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from tests.support import pages
from tests.support.repos import make_repo
from tests.support.terminal import Project

PICTURES = {theme: pages.DOCS / "pictures" / f"checkout-{theme}.svg" for theme in ("light", "dark")}

QUERY = 'vmrag query "when do requests time out" -k 1'
STEPS = ("git log --oneline -2", "git show --name-only --format= HEAD", QUERY, "git checkout -q HEAD~1", QUERY)

THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {"page": "#f6f8fa", "frame": "#d1d9e0", "text": "#1f2328", "prompt": "#0969da"},
    "dark": {"page": "#151b23", "frame": "#3d444d", "text": "#f0f6fc", "prompt": "#4493f8"},
}
_LINE, _LETTER, _MARGIN, _SIZE = 20, 8.43, 18, 14
"""Pixels: height of a line, width of a letter, margin, size of the font."""


def _keep_blanks(line: str) -> str:
    """Return the line with no-break spaces, because browsers join blanks in a picture."""
    return line.replace(" ", "\N{NO-BREAK SPACE}")


def draw(lines: Sequence[str], theme: str) -> str:
    """Return the session as SVG. A line that starts with `$ ` was typed."""
    colours = THEMES[theme]
    width = round(max(map(len, lines)) * _LETTER) + 2 * _MARGIN
    height = len(lines) * _LINE + 2 * _MARGIN
    texts = [
        f'<text x="{_MARGIN}" y="{_MARGIN + number * _LINE + _SIZE}" fill="{colours["prompt" if line.startswith("$ ") else "text"]}"'
        f"{' font-weight=' + chr(34) + '600' + chr(34) if line.startswith('$ ') else ''}>{escape(_keep_blanks(line))}</text>"
        for number, line in enumerate(lines)
        if line
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        "<title>git checkout changes the answer</title>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{colours["page"]}" stroke="{colours["frame"]}"/>',
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="{_SIZE}">',
        *texts,
        "</g>",
        "</svg>\n",
    ])  # fmt: skip


def play() -> list[str]:
    """Return what a terminal shows: each step, and what it prints."""
    with pages.folder() as folder:
        project = Project(make_repo(folder / "project").top)
        project.write("client.py", "TIMEOUT = 30\n")
        _record(project, 30, "Time out after 30 seconds")
        project.write("client.py", "TIMEOUT = 5\n")
        _record(project, 5, "Time out after 5 seconds")
        text = pages.session(STEPS, lambda program, arguments: _run(project, program, arguments))
    return text.rstrip("\n").split("\n")


def _record(project: Project, seconds: int, message: str) -> None:
    """Store the document and commit its pin with the code."""
    text = f"# Timeouts\n\nRequests time out after {seconds} seconds.\n"
    project.vmrag("add", "-", "--collection", "handbook", "--id", "timeouts", stdin=text)
    project.vmrag("commit", "-m", message)
    project.git("add", "-A")
    project.git("commit", "-q", "-m", message)


def _run(project: Project, program: str, arguments: list[str]) -> str:
    if program == "vmrag":
        return pages.run_vmrag(project, arguments)
    result = project.run(*arguments)
    return result.stdout + result.stderr


if __name__ == "__main__":
    lines = play()
    for theme, path in PICTURES.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(draw(lines, theme))
