"""Plot how well earlier commits answer the golden queries, as SVG for the page of a report.

Attributes contain only numbers and our class names. The caller escapes and shows texts of commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmrag_link.ops.check.thresholds import CommitQuality, GoldenMetrics, QualityHistory

WIDTH, HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 12, 12, 22
_DOT = 3
_LINES = ("mrr", "ndcg", "recall")


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
        height = _place_down(share)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height}" y2="{height}"/>'
        yield f'<text class="tick" x="{_LEFT - 6}" y="{height + 4}">{share:g}</text>'
    for run in _list_runs(commits):
        yield _draw_band(run, len(commits))
    for name in _LINES:
        for run in _list_runs(commits):
            points = [(_place_across(at, len(commits)), _place_down(getattr(metrics, name))) for at, metrics in run]
            path = " ".join(f"{point},{top}" for point, top in points)
            yield f'<polyline class="{name}" points="{path}"/>'
            yield from (f'<circle class="{name}" cx="{point}" cy="{top}" r="{_DOT}"/>' for point, top in points)
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
    above = [(_place_across(at, count), _place_down(metrics.ndcg_interval[1])) for at, metrics in run]
    below = [(_place_across(at, count), _place_down(metrics.ndcg_interval[0])) for at, metrics in reversed(run)]
    corners = " ".join(f"{x},{y}" for x, y in above + below)
    return f'<polygon class="band" points="{corners}"/>'


def _place_across(at: int, count: int) -> float:
    width = WIDTH - _LEFT - _RIGHT
    return round(_LEFT + (width * at / (count - 1) if count > 1 else width / 2), 1)


def _place_down(share: float) -> float:
    return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - share), 1)
