"""Jobs of an agent in a small repository, by `bench/agent_tasks.py` and a real client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import agent_tasks, knowledge
from bench.agent_tasks import Job

CODE = '''\
def ask(text):
    """Print a text, and read what the user types."""
    return input(text)


def greet(name):
    """Return a greeting."""
    if not name:
        raise ValueError("a greeting needs a name")
    return f"Hello {name}"
'''
NOTE = "The greeting is in English, because the log is parsed."

JOBS = (
    Job(
        "the code of one function",
        "lookup",
        "small",
        ["src/hello.py", 'return f"Hello {name}"'],
        [("read", {"symbol": "greet"})],
        ["git grep -n 'def greet'", "sed -n 1,30p src/hello.py"],
    ),
    Job(
        "an exact error message",
        "lookup",
        "small",
        ["src/hello.py", "a greeting needs a name"],
        [("grep", {"pattern": "a greeting needs a name", "fixed": True})],
    ),
    Job(
        "what a page stated at a tag",
        "question",
        "small",
        ["Python 2 is supported"],
        [
            (
                "search",
                {"query": "which Python versions are supported", "ref": "v1.0", "kind": "document", "max_tokens": 500},
            )
        ],
    ),
    Job(
        "what changed in a page since a tag",
        "lookup",
        "small",
        ["Drop Python 2"],
        [("history", {"name": "docs/usage.md", "since": "v1.0"})],
    ),
    Job(
        "remember, find and forget a decision",
        "memory",
        "small",
        ["notes/language", "the log is parsed"],
        [
            ("remember", {"name": "notes/language", "text": NOTE}),
            ("search", {"query": "why is the greeting in English", "collection": "notes", "max_tokens": 500}),
            ("forget", {"name": "notes/language"}),
        ],
    ),
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("jobs")
    env = knowledge.environment(folder / "home")
    source = folder / "source"
    for name, text in (("docs/usage.md", "# Usage\n\nPython 2 is supported.\n"), ("src/hello.py", CODE)):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    for command in ("init -q -b main", "add -A", "commit -qm Begin", "tag v1.0"):
        knowledge.git(source, *command.split(), env=env)
    (source / "docs/usage.md").write_text("# Usage\n\nPython 3 is supported.\n")
    knowledge.git(source, "commit", "-qam", "Drop Python 2", env=env)
    return agent_tasks.make(source, "HEAD", folder / "small", env), env


def test_each_job_is_right_and_a_wrong_answer_is_reported(repository):
    top, env = repository
    _, count = agent_tasks.choose_counter("")
    wrong = Job(
        "the name of the author", "lookup", "small", ["Ada Lovelace"], [("status", {})], ["git shortlog -s HEAD"]
    )
    rows, faults = agent_tasks.measure(top, [*JOBS, wrong], env, count, None)
    assert faults == ["the name of the author: wrong: no 'Ada Lovelace'"]
    assert len(rows) == len(JOBS) + 2
    assert [row.count("right") for row in rows] == [2, 1, 1, 1, 1, 0, 0]
    assert rows[-2].count("wrong") == 2


def test_costly_answer_is_reported(repository):
    top, env = repository
    job = Job(
        "all", "lookup", "small", ["def greet"], [("read", {"name": "src/hello.py"})], ["grep 'def greet' src/hello.py"]
    )
    (fault,) = agent_tasks.measure(top, [job], env, lambda texts: [len(text) for text in texts], None)[1]
    assert "times the tokens of git grep + reading" in fault


def test_missing_repositories_are_named_with_the_commands_that_fetch_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["agent_tasks", str(tmp_path / "one"), str(tmp_path / "two")])
    with pytest.raises(SystemExit) as stop:
        agent_tasks.main()
    assert f"git clone https://github.com/pallets/click {tmp_path / 'one'}" in str(stop.value)
    assert f"git clone https://github.com/pypa/packaging.python.org {tmp_path / 'two'}" in str(stop.value)


def test_counter_runs_the_given_command():
    program = "import json, sys; print(json.dumps([len(text.split()) for text in json.load(sys.stdin)]))"
    unit, count = agent_tasks.choose_counter(f"{sys.executable} -c '{program}'")
    assert (unit, count(["one two", ""])) == ("o200k tokens", [2, 0])


def test_jobs_are_fifteen_with_at_most_three_calls():
    assert len(agent_tasks.JOBS) == 15
    assert {job.repository for job in agent_tasks.JOBS} == set(agent_tasks.URLS) == set(agent_tasks.COMMITS)
    assert max(len(job.calls) for job in agent_tasks.JOBS) == 3
