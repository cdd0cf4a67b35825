"""Twelve jobs of an agent with a few plain tools, by a real client over stdio."""

from __future__ import annotations

import statistics
from pathlib import Path

import anyio
import pytest

from bench import agent_tasks, knowledge
from bench.agent_tasks import TASKS, Cost

MOST_BYTES = 6_000
"""Of the list of tools, which every conversation pays for."""


def measured(folder: Path, toolsets: str) -> tuple[int, list[Cost | None]]:
    env = knowledge.environment(folder / "home")
    top = agent_tasks.make(folder / toolsets, env)
    return anyio.run(agent_tasks.serve_and_measure, top, toolsets, env)


def test_each_job_takes_two_calls_at_most_and_the_list_is_short(tmp_path):
    size, costs = measured(tmp_path, "essential")
    assert len(TASKS) == 12
    assert size <= MOST_BYTES
    calls = {task.job: cost.calls for task, cost in zip(TASKS, costs, strict=True)}
    assert {job for job, number in calls.items() if number > 2} == set()
    assert statistics.median(calls.values()) == 1


@pytest.mark.long
def test_what_both_can_do_costs_fewer_tokens_than_with_the_default_tools(tmp_path):
    found = {}
    for name in ("essential", "default"):
        size, costs = measured(tmp_path, name)
        found[name] = size + sum(cost.answered for task, cost in zip(TASKS, costs, strict=True) if task.usual)
    assert found["essential"] < 0.75 * found["default"]
