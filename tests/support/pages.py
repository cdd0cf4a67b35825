"""Pages of docs/ of which a part is written by the program: what is between two marks, and what
commands print.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.repos import isolate
from tests.support.terminal import Project, new_project

DOCS = Path(__file__).parents[2] / "docs"

REVISION = r"(?<![0-9a-f-])(?:[0-9a-f]{7}|[0-9a-f]{10}|[0-9a-f]{12}|[0-9a-f]{40})(?![0-9a-f-])"
"""Whole or short, as our commands shorten revisions and commits, and no part of a UUID."""

TIME = r"\d{4}-\d\d-\d\dT[\d:]{8}Z"


def fill_page(page: Path, parts: Mapping[str, str]) -> str:
    """The page with each text between `<!-- MARK -->` and `<!-- end of MARK -->`, by its mark."""
    whole = page.read_text()
    for mark, text in parts.items():
        before, begin, rest = whole.partition(f"<!-- {mark} -->\n")
        _, end, after = rest.partition(f"<!-- end of {mark} -->")
        assert all((begin, end, begin not in after)), f"docs/{page.name} has no place for what is {mark}"
        whole = f"{before}{begin}\n{text}\n\n{end}{after}"
    return whole


def console(text: str) -> str:
    return f"```console\n{text}```"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder for projects, beside an empty home."""
    with tempfile.TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        isolate(patch, Path(made, "home"))
        patch.setenv("GIT_TEMPLATE_DIR", "")
        yield Path(made).resolve()


@contextlib.contextmanager
def newcomer(files: Mapping[str, str]) -> Iterator[Project]:
    """A project with these files, all settings as they are without any, in an empty home."""
    with folder() as made:
        project = new_project(made / "project", settings="")
        for name, text in files.items():
            project.write(name, text)
        project.vmrag("init", "--knowledge-base", "--no-sources")
        project.git("add", "-A")
        project.git("commit", "-q", "-m", "begin")
        yield project


def session(steps: Iterable[str], run: Callable[[str, list[str]], str]) -> str:
    """Format commands as they are typed, with the output of `run` and normalized revisions."""
    return normalize_revisions("".join(f"$ {step}\n{run(*_split(step))}" for step in steps))


def printed_by(text: str, steps: Iterable[int]) -> str:
    """Return the steps with these numbers of a session."""
    all_steps = re.split(r"(?m)^(?=\$ )", text)[1:]
    return "".join(all_steps[number] for number in steps)


def run_stories(
    stories: Mapping[str, Iterable[str]],
    project: Project,
    run: Callable[[Project, str], str],
    home: Path,
    begin: Callable[[Project, str], None] = lambda project, story: None,
) -> dict[str, str]:
    """Return the output of the steps of each story, one story after the other, by the story's name.

    `begin` brings the project to the start of a story. `cd` goes to another project, and a step
    that begins with `#` describes an event elsewhere: both are shown unchanged, and `run` returns
    the output of the other steps, and of those with `#`. Revisions are normalized, all times are
    equal, and the folder `home` is shown as /home/ada.
    """
    parts = []
    for story, steps in stories.items():
        begin(project, story)
        lines = []
        for step in steps:
            lines.append(f"{step}\n" if step.startswith("#") else f"$ {step}\n")
            if step.startswith("cd "):
                project = Project((project.top / step.removeprefix("cd ")).resolve())
            else:
                lines.append(run(project, step))
        parts.append("".join(lines))
    text = re.sub(TIME, "2026-01-31T12:00:00Z", normalize_revisions("\0".join(parts))).replace(str(home), "/home/ada")
    return dict(zip(stories, text.split("\0"), strict=True))


def import_docs(project: Project, message: str) -> None:
    """Keep what the folder docs holds as the documents of the collection handbook."""
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    project.vmrag("commit", "-m", message)


def record(project: Project, message: str) -> None:
    """Store the document like `import_docs`, and commit it with the code."""
    import_docs(project, message)
    project.git("add", "-A")
    project.git("commit", "-q", "--no-verify", "-m", message)


def run_vmrag(project: Project, arguments: list[str]) -> str:
    """Return the output of a command, for any exit code."""
    result = project.vmrag(*arguments, code=None)
    return result.out + result.err


def split_command(step: str) -> list[str]:
    """A command as a shell takes it apart."""
    return shlex.split(step)


def _split(step: str) -> tuple[str, list[str]]:
    program, *arguments = split_command(step)
    return program, arguments


def normalize_revisions(
    text: str,
    revision: str = REVISION,
    made: Callable[[bytes], str] = lambda number: hashlib.sha256(number).hexdigest(),
) -> str:
    """Replace each revision, which contains the time, by one that depends on the place of its first
    use, equal for short and full forms.

    `made` makes one from a number.
    """
    names: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        return names.setdefault(match[0][:7], made(str(len(names)).encode()))[: len(match[0])]

    return re.sub(revision, name, text)
