"""Plot how well earlier commits answer the golden queries, as SVG for the page of a report.

Attributes contain only numbers and our class names. The caller escapes and shows texts of commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmrag_link.ops.check.thresholds import CommitQuality, GoldenMetrics, QualityHistory

WIDTH = 720
HEIGHT = 200
_LEFT_MARGIN = 34
_RIGHT_MARGIN = 12
_TOP_MARGIN = 12
_BOTTOM_MARGIN = 22
_DOT_RADIUS = 3
_MEASURES = ("mrr", "ndcg", "recall")
"""Fields of `GoldenMetrics`, each drawn as a line."""


def draw_history(history: QualityHistory) -> str:
    """Return the plot, with the oldest commit on the left; empty if no commit could be measured.

    Each measure is a line, with a gap at a commit that could not be measured. The band is the
    confidence of nDCG.
    """
    commits = history.commits[::-1]
    if not any(commit.metrics for commit in commits):
        return ""
    return "".join(_draw_parts(commits))


def _draw_parts(commits: Sequence[CommitQuality]) -> Iterator[str]:
    yield f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="plot-title">'
    yield f'<title id="plot-title">Quality of the answers over {len(commits)} commits</title>'
    for share in (0, 0.5, 1):
        y = _compute_y(share)
        yield f'<line class="grid" x1="{_LEFT_MARGIN}" x2="{WIDTH - _RIGHT_MARGIN}" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick" x="{_LEFT_MARGIN - 6}" y="{y + 4}">{share:g}</text>'
    for run in _list_runs(commits):
        yield _draw_band(run, len(commits))
    for name in _MEASURES:
        for run in _list_runs(commits):
            points = [(_compute_x(at, len(commits)), _compute_y(getattr(metrics, name))) for at, metrics in run]
            path = " ".join(f"{x},{y}" for x, y in points)
            yield f'<polyline class="{name}" points="{path}"/>'
            yield from (f'<circle class="{name}" cx="{x}" cy="{y}" r="{_DOT_RADIUS}"/>' for x, y in points)
    yield "</svg>"


def _list_runs(commits: Sequence[CommitQuality]) -> Iterator[list[tuple[int, GoldenMetrics]]]:
    """Yield runs of neighbouring measured commits, with their positions."""
    run: list[tuple[int, GoldenMetrics]] = []
    for at, commit in enumerate(commits):
        if commit.metrics:
            run.append((at, commit.metrics))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _draw_band(run: Sequence[tuple[int, GoldenMetrics]], count: int) -> str:
    above = [(_compute_x(at, count), _compute_y(metrics.ndcg_interval[1])) for at, metrics in run]
    below = [(_compute_x(at, count), _compute_y(metrics.ndcg_interval[0])) for at, metrics in reversed(run)]
    corners = " ".join(f"{x},{y}" for x, y in above + below)
    return f'<polygon class="band" points="{corners}"/>'


def _compute_x(at: int, count: int) -> float:
    width = WIDTH - _LEFT_MARGIN - _RIGHT_MARGIN
    return round(_LEFT_MARGIN + (width * at / (count - 1) if count > 1 else width / 2), 1)


def _compute_y(share: float) -> float:
    return round(_TOP_MARGIN + (HEIGHT - _TOP_MARGIN - _BOTTOM_MARGIN) * (1 - share), 1)
