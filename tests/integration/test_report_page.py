"""`vmrag report --html` of a repository whose names, titles, messages and texts are hostile."""

from __future__ import annotations

from pathlib import Path

import pytest
from selectolax.lexbor import LexborHTMLParser

from tests.support import terminal
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

NAME = '"><img src=x onerror=alert(1)>\u202egnp.md'
TEXT = "# <script>alert(1)</script>\n\n</main></html><!-- {{ 7 * 7 }} \u2066 \x1b[2J javascript:alert(1) &lt;\n"
BRANCH = "x</title><script>alert(1)</script>"
MESSAGE = "<svg onload=alert(1)>\n\n</li></ol>\u202e"
QUERIES = "queries:\n  - query: '<b>alert</b> script'\n"


def test_everything_of_a_hostile_repository_is_text_on_the_page(project: Project, tmp_path: Path) -> None:
    project.git("switch", "-q", "-c", BRANCH, "first")
    project.put(NAME, TEXT, collection="handbook")
    project.put("faq.md", f"other\n{TEXT}")
    project.write(".vmrag/queries.yaml", QUERIES)
    project.vmrag("commit", "-m", MESSAGE)
    project.git("add", "-A")
    project.git("commit", "-qm", MESSAGE)
    path = tmp_path / "page.html"
    project.vmrag("report", "first", BRANCH, "--html", str(path))
    page = LexborHTMLParser(path.read_text())
    assert [element.text() for element in page.css("script")] == [page.css("script")[-1].text()]
    assert not page.css("img, svg, b, iframe, object")
    assert [
        (element.tag, name) for element in page.css("*") for name in element.attributes if name.startswith("on")
    ] == []
    body = page.body
    assert body is not None
    said = body.text()
    for text in (NAME, TEXT.strip(), BRANCH, MESSAGE.partition("\n")[0], "</li></ol>\u202e", "<b>alert</b> script"):
        seen = text.replace("\u202e", "\\u202e").replace("\u2066", "\\u2066").replace("\x1b", "\\x1b")
        assert seen in said, text
    title = page.css_first("title")
    assert title.text() == f"Knowledge: first → {BRANCH}"
