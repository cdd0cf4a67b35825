"""`vmrag grep`: the lines that match, in which files and documents, and errors of patterns."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.long import examples
from tests.support.repos import isolate, make_repo
from tests.support.terminal import Project, opened
from vmrag_link.retrieval.filters import compile_pattern
from vmrag_link.workspace.documents.grep import Pattern, grep_texts

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def found(project: Project, *arguments: str, code: int = 0) -> list[str]:
    return project.vmrag("grep", *arguments, code=code).out.splitlines()


def test_grep_prints_lines_of_documents_at_each_revision(project):
    assert found(project, "[Rr]est", "--collection", "handbook") == [
        "handbook/rest.md:1:# Rest",
        "handbook/rest.md:3:Take a rest, and sleep well.",
    ]
    assert found(project, "Never", "--at", "feature") == ["handbook/rest.md:3:Never rest."]
    assert found(project, "Never", code=1) == []
    project.put("draft.md", "Never say never.")
    assert found(project, "Never") == ["handbook/draft.md:1:Never say never."]
    assert found(project, "Never", "--at", "HEAD", code=1) == []
    assert found(project, "Never", "--at", "WORKING") == ["handbook/draft.md:1:Never say never."]


def test_options_are_those_of_grep(project):
    project.put("x.md", "A.B\nAxB\r\na.b\n\nend", collection="notes")
    assert found(project, "A.B") == ["notes/x.md:1:A.B", "notes/x.md:2:AxB"]
    assert found(project, "-F", "A.B") == ["notes/x.md:1:A.B"]
    assert found(project, "-i", "^a.b$", "-c") == ["notes/x.md:3"]
    assert found(project, "-l", "-i", "e", "--collection", "handbook", "--collection", "notes") == [
        "handbook/deep/tls.txt",
        "handbook/faq.md",
        "handbook/rest.md",
        "handbook/setup.md",
        "notes/x.md",
    ]
    assert found(project, "-l", "-i", "e", "--collection", "notes") == ["notes/x.md"]
    assert found(project, "-F", "a.b", "-U", "1") == ["notes/x.md-2-AxB", "notes/x.md:3:a.b", "notes/x.md-4-"]
    assert found(project, "-U", "1", "Rest|A.B|well", "--collection", "handbook", "--collection", "notes") == [
        "handbook/rest.md:1:# Rest",
        "handbook/rest.md-2-",
        "handbook/rest.md:3:Take a rest, and sleep well.",
        "--",
        "notes/x.md:1:A.B",
        "notes/x.md:2:AxB",
        "notes/x.md-3-a.b",
    ]
    assert found(project, "q*", "-c", "--collection", "notes") == ["notes/x.md:5"]


def test_very_long_line_is_shown_around_its_match(project):
    project.put("long.md", "x" * 50_000 + "needle" + "y" * 50_000)
    [line] = found(project, "needle")
    assert len(line) < 1_200
    assert "…x" in line
    assert "needle" in line
    assert line.endswith("y…")
    assert project.ask("grep", "needle")["documents"][0]["lines"][0]["matches"] == [[50_000, 50_006]]


@pytest.mark.parametrize("pattern", ["(a", "a{99999999999}", "(" * 5_000 + ")" * 5_000, "(?P<x>"])
def test_grep_rejects_invalid_pattern_with_hint(project, pattern):
    result = project.vmrag("grep", pattern, code=2)
    assert "invalid regular expression" in result.err
    assert "vmrag grep -F -- " in result.err


def test_grep_reports_missing_collection_and_commit(project):
    assert (
        project.vmrag("grep", "x", "--collection", "handbok", "--json", code=3).error["code"] == "COLLECTION_NOT_FOUND"
    )
    assert project.vmrag("grep", "x", "--at", "nowhere", "--json", code=3).error["code"] == "GIT_COMMIT_NOT_FOUND"


# -- tracked files


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A git repository without a knowledge base and without settings."""
    isolate(monkeypatch, tmp_path / "home")
    return Project(make_repo(tmp_path / "repo").top)


def add(project: Project, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = project.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "files")


def test_grep_finds_lines_of_files_that_no_source_names(repository):
    add(repository, {"pyproject.toml": b'[project]\nrequires-python = ">=3.11"\n', "src/a.c": b"int requires;\n"})
    assert found(repository, "requires") == [
        'pyproject.toml:2:requires-python = ">=3.11"',
        "src/a.c:1:int requires;",
    ]
    (repository.top / "pyproject.toml").write_text("requires nothing\n")
    assert found(repository, "nothing") == ["pyproject.toml:1:requires nothing"]
    assert found(repository, "nothing", "--at", "HEAD", code=1) == []
    assert found(repository, ">=3", "--at", "HEAD") == ['pyproject.toml:2:requires-python = ">=3.11"']


def test_grep_leaves_out_binary_ignored_untracked_and_linked_files(repository):
    (repository.top.parent / "outside.txt").write_text("needle")
    (repository.top / "link.txt").symlink_to("../outside.txt")
    add(
        repository,
        {
            ".gitignore": b"ignored.txt\n",
            "a.bin": b"needle\0",
            "b.txt": b"needle\n",
            ".gitattributes": b"c.txt binary\n",
            "c.txt": b"needle",
        },
    )
    for name in ("ignored.txt", "untracked.txt"):
        (repository.top / name).write_text("needle\n")
    assert found(repository, "needle") == found(repository, "needle", "--at", "HEAD") == ["b.txt:1:needle"]


def test_grep_names_text_files_that_it_does_not_search(repository, monkeypatch):
    monkeypatch.setattr("vmrag_link.sources.tracked_texts.MOST_BYTES", 100)
    add(repository, {"big.txt": b"needle\n" * 100, "big.bin": b"\0" * 1000, "small.txt": b"needle\n"})
    for arguments in ((), ("--at", "HEAD")):
        result = repository.vmrag("grep", "needle", *arguments)
        assert "small.txt:1:needle" in result.out
        assert "big.txt (has 700 bytes, more than 100)" in result.out + result.err
    assert repository.vmrag("show", "big.txt", "--json", code=3).error["code"] == "DOCUMENT_NOT_FOUND"


def test_grep_warns_about_blobs_that_a_partial_clone_lacks(repository, tmp_path):
    add(repository, {"a.txt": b"needle\n"})
    add(repository, {"a.txt": b"other\n"})
    repository.git("config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial"
    repository.git("clone", "-q", "--filter=blob:none", f"file://{repository.top}", str(partial))
    result = Project(partial).vmrag("grep", "needle", "--at", "HEAD~1", code=1)
    assert "1 file could not be searched: a.txt (is not in this partial clone" in result.out + result.err
    refused = Project(partial).vmrag("show", "HEAD~1:a.txt", code=3)
    assert "a.txt is not in this partial clone" in refused.err


def test_grep_prints_a_hint_if_other_letter_case_matches(repository):
    add(repository, {"a.txt": b"Needle\n"})
    result = repository.vmrag("grep", "needle", code=1)
    assert (result.out, result.err.strip()) == ("", "hint: -i finds 1 line")


def test_stored_documents_with_the_path_of_a_file_have_two_slashes(project):
    project.write("handbook/rest.md", "A file about rest.\n")
    project.git("add", "handbook/rest.md")
    lines = found(project, "-F", "rest", "--collection", "handbook")
    assert lines == ["handbook//rest.md:3:Take a rest, and sleep well."]
    assert "handbook/rest.md:1:A file about rest." in found(project, "-F", "rest")
    assert project.vmrag("show", "handbook/rest.md").out == "A file about rest.\n"
    assert project.vmrag("show", "handbook//rest.md").out.startswith("# Rest")


WORDS = (
    "alpha",
    "Beta",
    "gamma7",
    "été",
    "ΣΑΣ",
    "x",
    "",
    "a-b",
    "\u0131",
    "\u212a",
    "foo_bar",
    "12",
    "\t",
    "ß",
    "日本",
)
PATTERNS = (
    *("alpha", "(?i)BETA", r"\d", r"\bx\b", r"^$", r"x*", r"é", r"(?i)É", r"\w+7$", r"^\W", r"[^a]$", r"\s", r"a\s*$"),
    *(r"(?i)k", r"(?i)ss", r"\Aalpha", r"12\z", r"(?s)a.b", r"(?m)^x$", r"(?-m)^x", r"(?x) x  y?", r".", r"\p{Greek}"),
    *(r"\r", r"\n", r"alpha\b.", r"(alpha|日本)$", r"\x{FFFD}", r"^alpha.*12$", r"q{3}", r"\B", r"[[:upper:]]"),
)


def write_random_files(random_: random.Random) -> dict[str, bytes]:
    files = {}
    for number in range(60):
        lines = [" ".join(random_.choices(WORDS, k=random_.randint(0, 5))) for _ in range(random_.randint(0, 12))]
        text = random_.choice(("\n", "\r\n", "\n\n")).join(lines) + random_.choice(
            ("", "\n", "\r\n", "\r", "q" * 30_000)
        )
        encoding = random_.choice(("utf-8",) * 5 + ("utf-8-sig", "utf-16", "utf-32", "latin-1"))
        data = text.encode(encoding, "replace")
        name = (
            random_.choice(("", "folder/", "ø/", "a b/", "deep/er/"))
            + f"{number}.{random_.choice(('py', 'md', 'txt', 'x'))}"
        )
        files[name] = data + (b"\0" if random_.random() < 0.1 else b"")
    return files | {"late.txt": b"alpha\n" + b"." * 9000 + b"\0alpha x\n"}


def list_lines(data: bytes) -> list[str]:
    """Return the lines of a file's text, found without any code of the program."""
    wide = {b"\xff\xfe\0\0": "utf-32", b"\xff\xfe": "utf-16"}
    encoding = next((name for mark, name in wide.items() if data.startswith(mark)), "")
    if not encoding and b"\0" in data[:8000]:
        return []
    try:
        text = data.decode(encoding or "utf-8-sig")
    except UnicodeDecodeError:
        text = "" if b"\0" in data[:8000] else data.decode("utf-8-sig", "replace")
    text = text.replace("\r\n", "\n").replace("\0", "\ufffd")
    return text.removesuffix("\n").split("\n") if text else []


def test_grep_finds_the_matches_of_a_loop_over_tracked_files(repository):
    random_ = random.Random(20261129)
    files = write_random_files(random_)
    add(repository, files)
    texts = {name: list_lines(data) for name, data in files.items()}
    fixed = [random_.choice(WORDS) + random_.choice(("", " ", " x", "\t")) for _ in range(examples(15))]
    with opened(repository) as ws:
        for text in (*PATTERNS, *fixed):
            pattern = Pattern(text, fixed=text in fixed, linear=True)
            passes = (lambda line, text=text: text in line) if pattern.fixed else compile_pattern(text)
            expected = {
                name: numbers
                for name, lines in texts.items()
                if (numbers := [number for number, line in enumerate(lines, 1) if passes(line)])
            }
            for ref in (None, "HEAD"):
                report = grep_texts(ws, pattern, ref=ref)
                shown = {document.name: [line.number for line in document.lines] for document in report.documents}
                assert shown == expected, (text, ref)
                limited = grep_texts(ws, pattern, ref=ref, limit=3)
                assert limited.count == sum(map(len, expected.values()))
                assert sum(len(document.lines) for document in limited.documents) == min(3, limited.count)
        for text in ("alpha", r"x*", r"\bx\b", "(?i)été", r"(?<!a)lpha|12"):
            by_python = {name for name, lines in texts.items() if any(re.search(text, line) for line in lines)}
            assert {document.name for document in grep_texts(ws, Pattern(text)).documents} == by_python
