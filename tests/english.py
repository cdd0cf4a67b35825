"""Plain English: `python tests/english.py` counts constructions that readers stumble over.

It reads pages, help, messages, docstrings, comments and names of tests, and counts for each
top-level folder. No count may rise (`tests/budgets.py`). It also checks the form of the subjects of
commits that are not pushed yet. See "Ratchets" in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.budgets import ROOT, Place, check_budgets, list_tracked_files, run_git, wants_write

_START = r"(?=[A-Z])(?:\A|(?<=[.!?;:|*]\s)|(?<=\n\n)|(?<=^[-*#] )|(?<=^\| )|(?<=^> ))"
_BE = r"(?:is|are|was|were|be|been|being)"

CONSTRUCTIONS = {
    name: re.compile(pattern, re.MULTILINE)
    for name, pattern in (
        ("clause as subject", rf"{_START}(?:What|Who|Whoever|Whatever|Whichever|Whether)\b(?![^.!?]*\?)"),
        ("genitive first", rf"{_START}(?:Of (?!course\b)|(?:Taken|Left|Found|In conflict) (?:is|are|stands?)\b)"),
        ("say", r"(?i)\b(?:says?|said|saying)\b|\btells? (?:so|which|what|whether|you)\b"),
        ("agentless passive", rf"(?i)\b{_BE}(?: \w+ly)? (?:looked at|asked|taken|named|told)\b"),
        ("nobody", r"(?i)\b(?:nobody|somebody|anybody|whoever|strangers?)(?:'s)?\b"),
        ("is no", rf"(?i)(?<!\bthere )\b{_BE} (?:no|none)\b(?! longer| more than)"),
        ("is there", rf"(?i)\b{_BE} there\b(?!\s+(?:a|an|any|no)\b)"),
        ("stands", r"(?i)\b(?:stands?|stood|lies|lain)\b(?! for\b)"),
        ("old word", r"(?i)\b(?:likewise|anew|all the same|mend\w*|any more|seldom|at the most|(?:go(?:es)?|taken?) along)\b"),
        ("double genitive", r"(?i)\bof (?:git|jj|vmrag)'s\b|\bof (?:ours|theirs|yours)\b"),
    )
}  # fmt: skip
"""Name → pattern, for every kind of text."""

FRAGMENTS = {
    "Raises as": re.compile(r"\bRaises (?:as|the same|what)\b"),
    "As `x`": re.compile(r"\A(?:As|Of|That of|Those|One that|So that|Where)\s"),
}
"""The same for docstrings only."""

RIDDLE = re.compile(r"test_(?:what|who|whose|whoever|whatever|whether|that|where|nobody|somebody)_|_(?:is|are)_(?:said|told|no|none)(?:_|$)|_says_so|_anew")  # fmt: skip
"""Names of tests that do not begin with their subject."""

LONG_NAME = re.compile(r"test(?:_[^_]+){12,}")
"""Names of tests with more than 12 words, `test` included."""

_SUBJECT = re.compile(r"[a-z][\w./, -]*: [^\s;][^;]*[^\s;.]")
SUBJECT_LENGTH = 72
_FIRST_CHECKED = "0c94dce580a465e3b1fe5bcced4d32ae0d86f14c"
_GENERATED = ("tests/data/", "bench/data/", "constraints", "CHANGELOG.md", "LICENSE")
_COMMENTS = {".sh", ".toml", ".yml", ".yaml", ".cfg"}
_PROGRAM = ("vmrag_link", "hooks", "mcp_server", "action")


def list_places() -> Iterator[Place]:
    """Yield each use of a construction in a tracked file."""
    for file in list_tracked_files():
        if file.startswith(_GENERATED):
            continue
        folder = file.split("/")[0] if "/" in file else "."
        for kind, line, text in read_texts(file):
            for name, pattern in select_patterns(kind).items():
                for match in pattern.finditer(text):
                    excerpt = " ".join(text[max(0, match.start() - 30) : match.end() + 60].split())
                    yield Place(folder, name, file, line + text.count("\n", 0, match.start()), excerpt)


def select_patterns(kind: str) -> dict[str, re.Pattern[str]]:
    if kind == "name":
        return {"riddle": RIDDLE, "long name": LONG_NAME}
    return CONSTRUCTIONS | FRAGMENTS if kind == "docstring" else CONSTRUCTIONS


def read_texts(file: str) -> Iterator[tuple[str, int, str]]:
    """Yield (kind, line, text) of each text in a file that people read."""
    path = ROOT / file
    if path.suffix == ".md":
        yield "page", 1, blank_code(path.read_text())
    elif path.suffix == ".py":
        yield from read_python(path.read_text(), strings=file.startswith(_PROGRAM))
    elif path.suffix in _COMMENTS or not path.suffix:
        yield from read_comments(path)


def blank_code(page: str) -> str:
    """Replace the code of a Markdown page by blanks, so that line numbers stay."""
    page = re.sub(r"(?ms)^ *(```+|~~~+).*?^ *\1", lambda block: "\n" * block[0].count("\n"), page)
    return re.sub(r"`[^`\n]*`", "`x`", page)


def read_python(source: str, *, strings: bool) -> Iterator[tuple[str, int, str]]:
    tree = ast.parse(source)
    docstrings = set[ast.Constant]()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as constant):
                docstrings.add(constant)
                yield "docstring", constant.lineno, constant.value
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield "name", node.lineno, name
    if strings:
        yield from (("message", line, text) for line, text in read_strings(tree, docstrings) if " " in text)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield "comment", token.start[0], token.string.lstrip("# ")


def read_strings(tree: ast.Module, docstrings: set[ast.Constant]) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each string. The values of an f-string are written as `x`."""
    parts = set(docstrings)
    for node in ast.walk(tree):  # a string comes before its parts
        match node:
            case ast.JoinedStr(values=values):
                parts |= {value for value in values if isinstance(value, ast.Constant)}
                yield node.lineno, "".join(str(v.value) if isinstance(v, ast.Constant) else "`x`" for v in values)
            case ast.Constant(value=str(text)) if node not in parts:
                yield node.lineno, text


def read_comments(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the comments and descriptions of a file of settings or a script."""
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError:
        return
    for number, line in enumerate(lines, 1):
        if comment := re.search(r"(?:^|\s)#\s(.*)|^\s*-?\s*(?:description|about):\s*[>|\"']*(.+)", line):
            yield "comment", number, comment[1] or comment[2]


def check_subjects() -> bool:
    """Check the subjects of commits that no remote has, and that are newer than this check."""
    bases = [_FIRST_CHECKED] if run_git("rev-parse", "-q", "--verify", f"{_FIRST_CHECKED}^{{commit}}") else []
    if not bases and not run_git("remote"):
        return True  # new commits are unknown in a shallow clone without a remote
    log = run_git("log", "--no-merges", "--format=%h %s", "HEAD", "--not", "--remotes", *bases)
    wrong = [line for line in log.splitlines() if not is_subject(line.partition(" ")[2])]
    for line in wrong:
        print(f"error: commit {line}\n  write 'area: imperative summary' with at most {SUBJECT_LENGTH} characters")
    return not wrong


def is_subject(text: str) -> bool:
    """Return whether a commit subject has the form `area: imperative summary`.

    This does not check the grammar.
    """
    return len(text) <= SUBJECT_LENGTH and _SUBJECT.fullmatch(text) is not None


def main() -> int:
    subjects_pass = check_subjects()
    return 0 if check_budgets("english", list_places(), write=wants_write()) and subjects_pass else 1


if __name__ == "__main__":
    sys.exit(main())
