"""All hints in the code have one form, which `vmrag_link.hints` describes."""

from __future__ import annotations

import ast
import errno
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import hints as support
from vmrag_link import errors, hints
from vmrag_link.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PACKAGES = ("vmrag_link", "mcp_server/vmrag_mcp", "hooks/vmrag_hooks", "action/vmrag_action")
MOST = 200
"""Maximum number of characters of a hint. An inserted value counts as one."""

POSITIONS = {
    "Caution": 2,
    "CommitFinding": 2,
    "ContentUnreadable": 1,
    "Failure": 1,
    "Finding": 3,
    "NotShared": 1,
    "PinFinding": 4,
    "RemovedSetting": 2,
    "YamlRefused": 2,
    "_Flaw": 2,
    "_Place": 1,
    "_refuse_file": 2,
}
"""The position of the hint among the arguments of these classes."""

VERBS = frozenset(
    "add ask call change check choose compare convert correct create decode delete edit gather give import indent install "
    "join leave let look make merge mount move name omit open pass put reinstall remove rename report resolve restore run "
    "save see send set shorten split start store try use wait write".split()
)
UNQUOTED = re.compile(rf"(?<![\w./-])(?:vmrag (?:{'|'.join(COMMANDS)})|git (?:{'|'.join(support.GIT)}))\b")
NOT_A_COMMAND = ("git config", "git remote")
"""These can be names: `set vmrag.chroma.url in git config`."""


@cache
def _list_trees() -> dict[Path, ast.Module]:
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    texts = {path.relative_to(ROOT): path.read_text() for path in files}
    with_hints = re.compile(f"(?i)hint|remedy|fix|{'|'.join(POSITIONS)}")
    return {path: ast.parse(text) for path, text in texts.items() if with_hints.search(text)}


def _list_constants(tree: ast.Module) -> dict[str, ast.expr]:
    return {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _list_texts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the texts and the names that an expression can become."""
    match node:
        case ast.Constant(value=str(text)) if text:
            yield node
        case ast.JoinedStr() | ast.Name():
            yield node
        case ast.IfExp():
            yield from (*_list_texts(node.body), *_list_texts(node.orelse))
        case ast.BoolOp(values=values):
            for value in values:
                yield from _list_texts(value)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="hints"), attr="join_alternatives" | "join_steps"), args=args
        ):
            for value in args:
                yield from _list_texts(value)


def _is_hint_name(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return bool(re.search(r"(?:^|_)(?:hint|remedy|fix)$", name.lower()))


def _list_values(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions whose value is a hint."""
    inner = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func, args=args, keywords=keywords):
                name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
                yield from (keyword.value for keyword in keywords if keyword.arg == "hint")
                yield from args[POSITIONS.get(name, len(args)) :][:1]
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from (value for name, value in zip(names, values, strict=True) if _is_hint_name(name))
            case ast.Assign(targets=[target], value=value) if _is_hint_name(target):
                yield value
            case ast.FunctionDef(name=name) if re.search(r"_hint$|_remedy$", name):
                yield from (part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value)
            case ast.Constant(value=str()) | ast.JoinedStr() if node not in inner and re.match(
                "hint: [^X]", _read(node)
            ):
                yield node


def _list_hints() -> Iterator[tuple[str, ast.expr]]:
    """Yield each text of a hint with its place. A constant is looked up in its own module first."""
    constants = set()
    modules = {path: _list_constants(tree) for path, tree in _list_trees().items()}
    for path, tree in _list_trees().items():
        for value in _list_values(tree):
            for node in _list_texts(value):
                if not isinstance(node, ast.Name):
                    yield f"{path}:{node.lineno}", node
                elif node.id.isupper():
                    places = [path] if node.id in modules[path] else modules
                    constants |= {(place, node.id) for place in places}
    for path, name in constants:
        value = modules[path].get(name)
        yield from ((f"{path}:{part.lineno}", part) for part in (_list_texts(value) if value else ()))


def _read(node: ast.expr) -> str:
    """Return a text with `X` for each inserted value."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)


def find_flaw(hint: str) -> str:
    """Return why a text does not have the form of a hint, or an empty text."""
    outside = hint
    for command in hints.list_commands(hint):
        outside = outside.replace(f"'{command}'", "''")
    first = re.split(r"[^a-z]", outside)[0] or hint[:10]
    bare = [command for command in UNQUOTED.findall(outside) if command not in NOT_A_COMMAND]
    flaws = {
        f"starts with {first!r}, which is not a verb of VERBS": first not in VERBS,
        "ends with a full stop": outside.endswith((".", ";", ":")),
        "has two sentences or a clause in parentheses": any(mark in outside for mark in ("; ", ". ", "   (")),
        "has more than two alternatives": outside.count(", or ") > 1,
        f"has {len(hint)} characters": len(hint) > MOST,
        # A statement of SQL has "USER"@"HOST".
        "has a value in plain double quotes instead of `errors.quoted`": re.search(r'"X[^" ]*"(?!@)', hint),
        f"has the command {bare[:1]} without quotes": bare,
    }
    return next((flaw for flaw, is_flawed in flaws.items() if is_flawed), "")


def test_all_hints_have_one_form():
    texts = [(place, _read(node).removeprefix("hint: ").strip()) for place, node in _list_hints()]
    flaws = [f"{place}: {flaw}: {text}" for place, text in texts if (flaw := find_flaw(text))]
    assert not flaws, "\n".join(flaws)
    assert len(texts) > 700


@pytest.mark.parametrize(
    ("hint", "flaw"),
    [
        ("vmrag sync", "not a verb"),
        ("Run 'vmrag sync'", "not a verb"),
        ("run 'vmrag sync'.", "full stop"),
        ("run vmrag sync", "without quotes"),
        ("run 'vmrag sync'   (updates the index)", "parentheses"),
        ("run 'vmrag sync'; see git status", "two sentences"),
        ("run 'a', or 'b', or 'c'", "two alternatives"),
        ("run 'vmrag add \"a, or b\"', or 'vmrag show x; y' to see it", ""),
        ("run 'ls -ld \"X\"'", "plain double quotes"),
        ("check that git is installed", ""),
    ],
)
def test_other_forms_are_found(hint: str, flaw: str):
    flaw_of_hint = find_flaw(hint)
    assert flaw in flaw_of_hint
    assert bool(flaw) == bool(flaw_of_hint)


def test_hints_are_joined_as_alternatives_and_steps():
    one, two = hints.suggest_command("git fetch", "fetch it"), hints.suggest_command("vmrag pin", "write a pin")
    assert hints.join_alternatives(one, two) == "run 'git fetch' to fetch it, or 'vmrag pin' to write a pin"
    assert hints.join_steps(one, two) == "run 'git fetch' to fetch it, then 'vmrag pin' to write a pin"
    assert (
        hints.join_alternatives(hints.join_alternatives(one, two), "add --copy")
        == "run 'git fetch' to fetch it, or add --copy"
    )
    assert hints.join_steps(hints.join_alternatives(one, "add --copy"), two) == hints.join_steps(one, two)
    assert hints.join_alternatives("", two) == hints.join_steps("", two) == two
    assert hints.join_alternatives(one, "") == one
    assert hints.append_to("no pin.", one) == "no pin; run 'git fetch' to fetch it"


@pytest.mark.parametrize("name", ["a b", "x;rm -rf .", "it's", "a, or b", "$(rm)", 'a"b', "a!b"])
def test_commands_are_found_with_unusual_names(name: str):
    command = f"vmrag show {errors.quoted(name)}"
    assert hints.list_commands(f"run '{command}' to see it, or 'vmrag list'") == [command, "vmrag list"]


def test_alternatives_of_a_hint_are_hints():
    hint = "run 'vmrag add \"a, or b\"' to store it, or 'vmrag show x'"
    assert hints.list_alternatives(hint) == ["run 'vmrag add \"a, or b\"' to store it", "run 'vmrag show x'"]
    assert hints.list_alternatives("") == []


@pytest.mark.parametrize(
    "word", ["plain", "two words", "$(touch x)", "a`id`", 'a "b"', "it's", "a\\b", "a!b", "a\nb", ";rm *"]
)
def test_quoted_word_reaches_a_program_unchanged(word: str):
    hint = hints.suggest_command(f"printf %s {errors.quoted(word)}", "print it")
    [command] = hints.list_commands(hint)
    assert subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout == word


def test_hint_with_hostile_path_runs_nothing_in_its_name(tmp_path: Path):
    folder = tmp_path / "docs$(touch evil)"
    folder.mkdir()
    error = errors.system_failure(PermissionError(errno.EACCES, "Permission denied", str(folder)))
    assert error is not None
    [command] = hints.list_commands(error.hint)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=True)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
