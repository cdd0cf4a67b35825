"""When toolsets are looked for, and when not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import terminal
from tests.support.terminal import Project

template, project = terminal.template, terminal.project

REFUSING = """
import importlib.metadata, sys

def refuse(**_):
    raise SystemExit("looked for")

importlib.metadata.entry_points = refuse
"""
RUN = f"{REFUSING}from vmrag_link.cli.main import run; sys.exit(run(sys.argv[1:]))"
HOOK = f"{REFUSING}import runpy; sys.argv[0] = 'vmrag_hooks'; runpy.run_module('vmrag_hooks', run_name='__main__')"


def run(project: Project, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=project.top, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("arguments", [("--version",), ("query", "install the program"), ("status",), ("list",)])
def test_core_commands_look_for_no_toolset(project: Project, arguments: tuple[str, ...]) -> None:
    result = run(project, RUN, *arguments)
    assert "looked for" not in result.stderr
    assert result.stdout


def test_checkout_looks_for_nothing(project: Project) -> None:
    project.git("switch", "-q", "feature")
    before, after = project.git("rev-parse", "main", "feature").split()
    result = run(project, HOOK, "post-checkout", before, after, "1")
    assert (result.returncode, "looked for" in result.stdout + result.stderr) == (0, False)


@pytest.mark.parametrize("arguments", [("help", "--all"), ("issue", "list"), ("no-such-command",)])
def test_other_commands_look_for_toolsets(project: Project, arguments: tuple[str, ...]) -> None:
    assert "looked for" in run(project, RUN, *arguments).stderr
