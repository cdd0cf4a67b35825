"""The short form of `python -m bench --only parallel`: agents in work trees of their own."""

from __future__ import annotations

from bench import knowledge, parallel


def test_agents_in_work_trees_lose_no_write_and_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "BUSY", 0.9)
    monkeypatch.setattr(parallel, "DOCUMENTS", 100)
    figures = parallel.run(tmp_path, knowledge.environment(tmp_path / "home"), count=2, seconds=3.0, alone_for=2)
    assert figures[0].seconds["questions"] >= 3
    assert [figure for figure in figures[1:] if not figure.kept] == []
