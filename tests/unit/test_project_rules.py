"""Rules of the house that import-linter cannot see, and documents that must keep up with the
code.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import vmrag_link
from vmrag_link.cli import commands, reference
from vmrag_link.cli.commands import COMMANDS
from vmrag_mcp.registry import load_catalogue

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = ("vmrag_link", "action", "hooks", "mcp_server")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SQL_OF_DOLT = re.compile(r"\b(dolt_(?!remote|branch\b|commit\b)\w+|DOLT_\w+|AS OF)\b|\bdolt_(branch|commit)\s*\(")


Trees = dict[str, ast.Module]
"""Each module of our packages, by its path."""


@pytest.fixture(scope="module")
def trees() -> Trees:
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in SOURCES}


def nodes(trees: Trees, *, outside: str | None = None) -> Iterator[tuple[str, ast.AST]]:
    """Yield all syntax except that below `outside`, with its place."""
    for name, tree in trees.items():
        if outside is None or not name.startswith(outside):
            for node in walked(tree):
                yield f"{name}:{getattr(node, 'lineno', 0)}", node


@functools.cache
def walked(tree: ast.Module) -> list[ast.AST]:
    """Walk a tree once for all tests, without the contexts of names (read or written)."""
    return [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]


def test_public_class_name_has_one_definition(trees: Trees) -> None:
    places: dict[str, list[str]] = {}
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)
    frameworks = places.pop("VmragRetriever")  # users of each framework look for this name
    assert frameworks == ["vmrag_link/langchain.py", "vmrag_link/llama_index.py"]
    assert {name: place for name, place in places.items() if len(place) > 1} == {}


def test_version_is_equal_in_both_places() -> None:
    assert PROJECT["project"]["version"] == vmrag_link.__version__


def test_changelog_names_the_version() -> None:
    assert f"## {vmrag_link.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_ci_runs_the_line_that_the_readme_shows() -> None:
    line = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    assert "tests/check.py" in line
    assert f"\n{line}\n" in (ROOT / "README.md").read_text()
    assert f"\n{line}\n" in (ROOT / "CONTRIBUTING.md").read_text()


# -- the exact versions that CI installs, and users may


def pinned(name: str) -> dict[str, tuple[list[Version], int]]:
    """Versions (one for each range of Pythons) and number of hashes by the name of the package."""
    result: dict[str, tuple[list[Version], int]] = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / name).read_text().strip()):
        requirement = Requirement(entry.split("\\", 1)[0])
        (only,) = requirement.specifier
        assert only.operator == "=="
        hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry)
        versions = result.get(requirement.name, ([], 0))[0]
        result[requirement.name] = [*versions, Version(only.version)], len(hashes)
    return result


def required(extra: str) -> Iterator[Requirement]:
    """Yield the requirements of an extra without the base, including those of the extras that it
    names.
    """
    for text in PROJECT["project"]["optional-dependencies"][extra]:
        requirement = Requirement(text)
        if requirement.name == "vmrag-link":
            for other in requirement.extras:
                yield from required(other)
        else:
            yield requirement


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("constraints.txt", ("all", "minilm", "convert")),
        ("constraints-dev.txt", ("all", "minilm", "convert", "dev")),
    ],
)
def test_every_dependency_has_exact_versions_with_hashes(name: str, extras: tuple[str, ...]) -> None:
    pinned_version = pinned(name)
    assert [package for package, (_, hashes) in pinned_version.items() if not hashes] == []
    expected = [
        Requirement(dependency)
        for dependency in PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]
    ]
    for requirement in [*expected, *(extra_requirement for extra in extras for extra_requirement in required(extra))]:
        versions, _ = pinned_version[canonicalize_name(requirement.name)]
        outside = [str(version) for version in versions if version not in requirement.specifier]
        assert not outside, f"{name} has {requirement.name} {outside}: renew it as CONTRIBUTING says"


def test_action_requires_its_own_dependency_by_hash_only() -> None:
    [(package, ([version], hashes))] = pinned("action/requirements.txt").items()
    [requirement] = required("action")
    assert (package, str(requirement.specifier)) == (requirement.name, f"=={version}")
    assert hashes


def test_ci_tests_the_versions_that_users_are_offered() -> None:
    tested = pinned("constraints-dev.txt").items()
    assert pinned("constraints.txt").items() <= tested
    assert pinned("action/requirements.txt").items() <= tested


def test_lists_of_exact_versions_name_no_host() -> None:
    for path in [*ROOT.glob("constraints*.txt"), ROOT / "action" / "requirements.txt", ROOT / ".ci" / "uv.txt"]:
        assert not re.search(r"://|--(extra-)?index|--find-links|@", path.read_text())


@pytest.mark.parametrize("name", commands.list_names())
def test_every_command_has_help_and_the_common_options(name: str) -> None:
    command = commands.find_command(name)
    assert isinstance(command, click.Command)
    assert command.name == name
    for subcommand in [command, *getattr(command, "commands", {}).values()]:
        assert subcommand.help
        assert {"--json", "-C", "-q", "-v"} <= {option for parameter in subcommand.params for option in parameter.opts}
        for parameter in subcommand.params:
            assert not isinstance(parameter, click.Option) or parameter.help, f"{parameter.name} has no help"


def test_command_line_modules_are_named_after_commands() -> None:
    modules = {path.stem.removesuffix("_") for path in (ROOT / "vmrag_link" / "cli").glob("[!_]*.py")}
    helpers = {
        "answering",
        "base",
        "case_files",
        "commands",
        "common",
        "editor",
        "diff_view",
        "history_view",
        "main",
        "output",
    }
    helpers |= {
        "passage_view",
        "proposals",
        "query_since",
        "reference",
        "resolve_dialog",
        "terminal",
        "texts",
        "new_knowledge_base",
        "writing",
    }
    assert modules - helpers == set(COMMANDS)


def test_list_of_commands_is_up_to_date() -> None:
    written = (ROOT / "docs" / "commands.md").read_text()
    assert written == reference.format_reference(), "run: python -m vmrag_link.cli.reference > docs/commands.md"
    assert {f"\n## vmrag {name}\n" for name in commands.list_names()} <= {
        f"\n{line}\n" for line in written.splitlines()
    }


def anchors(page: Path) -> set[str]:
    """Return GitHub's anchors of the page's headings; a repeated heading has no anchor of its
    own.
    """
    text = re.sub(r"(?ms)^ *(`{3,})[^`\n]*$.*?^ *\1$", "", page.read_text())
    made = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"(?m)^#+ (.+)$", text)]
    return {engine for engine in made if made.count(engine) == 1}


def test_links_between_documents_lead_somewhere() -> None:
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "bench" / "README.md",
        ROOT / "tests" / "README.md",
        ROOT / "tests" / "attacks.md",
    ]
    for page in pages:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            result = (page.parent / target).resolve() if target else page
            assert result.exists(), f"{page.relative_to(ROOT)} links to {target}"
            assert not anchor or anchor in anchors(result), f"{page.relative_to(ROOT)} links to {target}#{anchor}"


def test_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {name for name in pages if f"({name})" not in index} == set()


def test_pages_end_with_the_next_ones() -> None:
    for path in (ROOT / "docs").glob("*.md"):
        assert path.read_text().rstrip().splitlines()[-1].startswith("Next: ["), path.name


def test_documents_named_by_the_program_exist() -> None:
    examples = {"docs/setup.md", "docs/reference/configuration.md"}  # of the reader's project, and of a client's
    code = [path for name in ("vmrag_link", "hooks", "mcp_server", "action") for path in (ROOT / name).rglob("*.py")]
    recipes = [path for path in (ROOT / "ci").rglob("*") if path.is_file()]
    for path in [*code, *recipes, ROOT / ".pre-commit-hooks.yaml", ROOT / "pyproject.toml", ROOT / "CONTRIBUTING.md"]:
        for named in set(re.findall(r"(?<![\w/])docs/[a-z/-]+\.md", path.read_text())) - examples:
            assert (ROOT / named).exists(), f"{path.relative_to(ROOT)} names {named}"


def test_attacks_page_names_existing_tests() -> None:
    """`…::name` is in the previously named file."""
    named = re.findall(
        r"`(?:((?!tests/)[a-z0-9_/]+/\w+\.py)|…)(?:::(\w+))?`", (ROOT / "tests" / "attacks.md").read_text()
    )
    file = ""
    for path, test in named:
        file = path or file
        source = (ROOT / "tests" / file).read_text()
        assert not test or f"def {test}(" in source, f"{file} has no {test}"


def test_every_dependency_has_a_reason() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    requirements = [line for line in lines if re.match(r'    "[\w.-]+[<>=]=', line)]
    assert requirements
    assert [line for line in requirements if "# " not in line] == []


def test_environment_variables_are_read_in_one_module(trees: Trees) -> None:
    for place, node in nodes(trees, outside="vmrag_link/env.py"):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr="getenv" | "putenv" | "getenvb" | "environb"):
                pytest.fail(f"{place} reads the environment")
            case (
                ast.Subscript(value=ast.Attribute(attr="environ")) | ast.Attribute(value=ast.Attribute(attr="environ"))
            ):
                pytest.fail(f"{place} reads the environment")


def test_git_is_run_by_its_own_package(trees: Trees) -> None:
    for place, node in nodes(trees, outside="vmrag_link/git/"):
        match node:
            case ast.List(elts=[ast.Constant(value="git"), *_]) | ast.Tuple(elts=[ast.Constant(value="git"), _, *_]):
                pytest.fail(f"{place} runs git")


def test_only_engines_speak_the_sql_of_dolt(trees: Trees) -> None:
    """The server's tools have names of Dolt functions: such a name without an argument is not SQL.

    Names of environment variables and of an error are not SQL either.
    """
    no_sql = re.compile(r"DOLT_[A-Z_]+")
    tools = re.compile(rf"\b({'|'.join(load_catalogue())})\b(?!\s*\()")
    for place, node in nodes(trees, outside="vmrag_link/engines/"):
        match node:
            case ast.Constant(value=str(text)):
                said = tools.sub("", text) if place.startswith(("mcp_server/", "vmrag_link/toolsets/")) else text
                if place.startswith(("vmrag_link/env.py:", "vmrag_link/errors.py:")):
                    said = no_sql.sub("", said)
                assert not SQL_OF_DOLT.search(said), f"{place} speaks SQL"


def test_program_prints_only_through_the_filter(trees: Trees) -> None:
    """And a server prints nothing: its standard output is the protocol's."""
    allowed = {
        "vmrag_link/cli/__init__.py",  # on Windows, where no filter can be imported
        "vmrag_link/cli/output.py",
        "vmrag_link/cli/reference.py",
        "hooks/vmrag_hooks/boundary.py",
        "mcp_server/vmrag_mcp/process.py",
        "action/vmrag_action/runner.py",
        "action/vmrag_action/install.py",  # before there is a filter
    }
    printing = {"echo", "secho", "style", "echo_via_pager", "prompt", "confirm", "pause", "progressbar"}
    for place, node in nodes(trees):
        name = place.partition(":")[0]
        if not name.startswith(("vmrag_link/cli/", "action/", "hooks/", "mcp_server/")) or name in allowed:
            continue
        match node:
            case ast.Call(func=ast.Name(id="print")):
                pytest.fail(f"{place} prints by itself")
            case ast.Attribute(value=ast.Name(id="click"), attr=used) if used in printing:
                pytest.fail(f"{place} prints by itself: click.{used}")
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"), attr=used):
                assert used in ("isatty", "flush"), f"{place} prints by itself: {used}"
            case ast.Attribute(
                attr="print_exc" | "print_exception" | "show" as used, value=ast.Name(id="traceback" | "error")
            ):
                pytest.fail(f"{place} prints by itself: {used}")


def test_pin_becomes_a_revision_in_one_place(trees: Trees) -> None:
    """A revision may have another name since a migration: code that looks it up uses
    `engines.migrated`.

    Other code reads the other fields of a pin, or its literal text.
    """
    result = {
        place.partition(":")[0]
        for place, node in nodes(trees, outside="vmrag_link/pin.py")
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("pins.parse_pin", "pin.parse_pin", "pin_format.parse_pin", "parse_pin")
    }
    assert result == {
        "vmrag_link/engines/migrated.py",
        "vmrag_link/git/pin_conflict.py",  # whether it can be read
        "vmrag_link/workspace/merge/sides.py",  # the branch
        "vmrag_link/ops/migrate/references.py",  # to rewrite it
        "vmrag_link/workspace/pins/pinning.py",  # whether a file is one
        "vmrag_link/workspace/remotes/destinations.py",  # the remote, and which engine to fetch from it
        "vmrag_link/workspace/reasons.py",  # the remote
    }


def test_only_the_session_runs_tools(trees: Trees) -> None:
    """So what it refuses before a tool, locks and translates holds for each of them, those to come
    included.
    """
    for place, node in nodes(trees, outside="mcp_server/vmrag_mcp/session.py"):
        match node:
            case ast.Call(func=ast.Name(id="function_of") | ast.Attribute(attr="function_of")):
                pytest.fail(f"{place} takes a tool's function")


def test_only_the_outermost_boundaries_catch_everything(trees: Trees) -> None:
    boundaries = {
        "vmrag_link/cli/main.py",
        "action/vmrag_action/__main__.py",
        "hooks/vmrag_hooks/boundary.py",
        "mcp_server/vmrag_mcp/session.py",
        "mcp_server/vmrag_mcp/start.py",
        "vmrag_link/thread_task.py",  # what a thread raised is raised where it is waited for
        "vmrag_link/conversion/child/__main__.py",  # converters raise whatever they like
        "vmrag_link/toolset.py",  # errors of a foreign package during its import
        "vmrag_link/chroma/bindings.py",  # a Rust panic is a BaseException of no public type
    }
    for place, node in nodes(trees):
        match node:
            case ast.ExceptHandler(type=None | ast.Name(id="Exception" | "BaseException")) if not _raises_again(node):
                assert place.partition(":")[0] in boundaries, f"{place} catches everything"


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_json_decoders_also_catch_unicode_errors(trees: Trees) -> None:
    """msgspec raises `UnicodeDecodeError` for a string with invalid UTF-8, not its own
    `DecodeError`.
    """
    for place, node in nodes(trees):
        match node:
            case ast.ExceptHandler(type=ast.expr() as caught):
                names = {
                    node.attr if isinstance(node, ast.Attribute) else ast.unparse(node) for node in ast.walk(caught)
                }
                if names & {"DecodeError", "MsgspecError"}:
                    assert names & {"UnicodeDecodeError", "ValueError"}, f"{place} lets UnicodeDecodeError through"
