"""Pages of libraries are imported from a real server of this machine, and refreshed."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter

import pytest

from tests.support import notes
from tests.support.terminal import SCRIPT
from tests.support.websites import Website, website
from vmrag_link.toolsets.libraries import take_pages
from vmrag_link.toolsets.libraries.refresh_command import RefreshReport, refresh_libraries
from vmrag_link.toolsets.libraries.take_pages import SiteReport, take_site

pytestmark = pytest.mark.hooks("off")

template, project = notes.template, notes.project

OWLS = "<title>Owls</title><h1>Owls</h1><p>Owls sleep in hollow trees."
BATS = "<h1>Bats</h1><p>Bats sleep in caves."


@pytest.fixture
def site(monkeypatch):
    """A site of three pages and of one that is not there, with a sitemap."""
    monkeypatch.setenv("VMRAG_INGEST_ALLOW_PRIVATE_URLS", "127.0.0.1")
    with website() as made:
        made.pages |= {
            "/owls": page(OWLS),
            "/bats": page(BATS),
            "/notes.md": (200, {"Content-Type": "text/markdown"}, b"# Notes\n\nMoths sleep by day."),
        }
        names = "".join(f"{made.url(path)}\n" for path in ("/owls", "/bats", "/notes.md", "/gone"))
        made.pages["/sitemap.txt"] = names
        yield made


def page(text, etag='"1"'):
    """Return a page that is sent only to clients without it."""

    def answer(request):
        is_unchanged = request.headers["If-None-Match"] == etag
        request.send_response(304 if is_unchanged else 200)
        request.send_header("Content-Type", "text/html")
        request.send_header("ETag", etag)
        request.end_headers()
        if not is_unchanged:
            request.wfile.write(text.encode())

    return answer


def took(project, site: Website, **more) -> SiteReport:
    with notes.opened(project) as ws:
        return take_site(ws, "web", site.url("/sitemap.txt"), **more)


def refreshed(project, *names, **more) -> RefreshReport:
    with notes.opened(project) as ws:
        return refresh_libraries(ws, names, **more)


def statuses(report) -> dict[str, str]:
    return {page.url.rpartition("/")[2]: page.status for page in report.pages}


def test_import_of_a_site_lists_its_failures(project, site):
    report = took(project, site)
    assert statuses(report) == {"owls": "indexed", "bats": "indexed", "notes.md": "indexed", "gone": "failed"}
    failed = report.pages[-1]
    assert (failed.code, failed.doc_id) == ("FETCH_FAILED", "")
    assert "404" in failed.problem
    assert {document["title"] for document in project.ask("list", "--collection", "web")["documents"]} == {
        "Owls",
        "Bats",
        "Notes",
    }
    again = took(project, site)
    assert set(statuses(again).values()) == {"unchanged", "failed"}
    assert [page.doc_id for page in again.pages] == [page.doc_id for page in report.pages]


def test_site_is_imported_by_its_sitemap(project, site):
    site.pages["/robots.txt"] = "User-agent: *\nDisallow: /notes.md\n"
    site.pages["/sitemap.txt"] += "http://elsewhere.example/\nno url\n"
    url = site.url("/sitemap.txt")
    arguments = ("import", "--sitemap", url, "--library", "web", "--metadata", '{"of": "animals"}')
    said = project.vmrag(*arguments, code=1).out
    assert "web: 2 documents added, 0 unchanged" in said
    assert f"Not taken: {site.url('/gone')} cannot be fetched: its server answered 404 Not Found." in said
    assert "Left out: 1 of other hosts, 1 that robots.txt disallows and 1 that are not URLs." in said
    assert "vmrag commit" in said
    documents = project.ask("list", "--collection", "web")["documents"]
    assert [document["metadata"]["of"] for document in documents] == ["animals", "animals"]
    report = project.ask(*arguments, "--most", "2")
    assert set(report) == REPORT
    assert (report["sitemap"], report["more"], [page["status"] for page in report["pages"]]) == (
        url,
        2,
        ["unchanged", "unchanged"],
    )
    for wrong in (
        ["--sitemap", url, url],
        ["--sitemap", url, "--collection", "notes"],
        ["--sitemap", "sitemap.xml"],
        [url, "--most", "3"],
    ):
        assert project.vmrag("import", *wrong, "--json", code=2).error["code"] == "INVALID_PARAMETER"


REPORT = {"sitemap", "library", "pages", "elsewhere", "disallowed", "invalid", "more", "failures", "branch", "pending"}


def test_refresh_stores_changes_uncommitted_and_diff_shows_words(project, site):
    took(project, site)
    project.vmrag("commit", "-m", "pages")
    site.pages["/owls"] = page(OWLS.replace("hollow", "old hollow"), etag='"2"')
    site.pages["/bats"] = page(BATS + "<!-- served at noon -->", etag='"2"')  # other bytes, the same document
    dry = project.vmrag("refresh", "--dry-run").out
    assert f"M  {site.url('/owls')} | +1 -0" in dry
    assert "1 page changed, 2 unchanged, 0 failed" in dry
    assert "run the command without --dry-run" in dry
    assert project.ask("status")["kb"]["dirty"] is False

    said = project.vmrag("refresh").out
    assert "vmrag diff" in said
    assert "vmrag commit" in said
    said = project.vmrag("diff").out
    assert "{+old +}hollow" in said
    assert "origin" not in said, "of which bytes a document was made tells a person nothing"
    assert [document["uncommitted"] for document in project.ask("list", "--collection", "web")["documents"]].count(
        "modified"
    ) == 1
    answer = project.ask("refresh")
    assert set(answer) == {"pages", "replaced", "unchanged", "failed", "dry_run", "branch", "pending"}
    assert set(answer["pages"][0]) == {"url", "library", "status", "doc_id", "words", "code", "problem", "hint"}
    assert (answer["replaced"], answer["unchanged"], answer["failed"], answer["dry_run"]) == (0, 3, 0, False)


def test_libraries_documents_and_urls_can_be_named(project, site):
    owls, *_ = took(project, site).pages
    with notes.opened(project) as ws:
        take_site(ws, "other", site.url("/sitemap.txt"), max_pages=1)
    site.requests.clear()
    assert len(refreshed(project, "web").pages) == 3
    assert {page.library for page in refreshed(project, owls.url.replace("http", "HTTP")).pages} == {"web", "other"}
    assert [page.url for page in refreshed(project, f"web/{owls.doc_id}", owls.url).pages] == [owls.url, owls.url]
    for names, code, hint in (
        (["nothing"], "COLLECTION_NOT_FOUND", "run 'vmrag list' to list the collections"),
        (["notes"], "INVALID_PARAMETER", "run 'vmrag list' to list the collections"),
        (["web/none"], "DOCUMENT_NOT_FOUND", "run 'vmrag list --collection web' to list the names"),
        (["http://else.example/"], "DOCUMENT_NOT_FOUND", "run 'vmrag import http://else.example/ --library NAME'"),
    ):
        error = project.vmrag("refresh", *names, "--json", code=None).error
        assert (error["code"], error["hint"]) == (code, hint)


def test_refresh_keeps_document_of_a_failed_page_and_exits_with_1(project, site):
    took(project, site)
    before = project.ask("list", "--collection", "web")
    site.pages |= {"/owls": (500, {}, b""), "/bats": (200, {"Content-Type": "text/html"}, b"<p> ")}
    result = project.vmrag("refresh", code=1)
    assert "0 pages changed, 1 unchanged, 2 failed" in result.out
    assert f"!  {site.url('/owls')} cannot be fetched: its server answered 500" in result.out
    assert project.ask("list", "--collection", "web") == before


def test_unstorable_page_does_not_stop_the_others(project, site, monkeypatch):
    monkeypatch.setattr(take_pages, "BATCH_PAGES", 2)
    site.pages["/bats"] = (200, {"Content-Type": "text/markdown"}, b"---\norigin: elsewhere\n---\n# Bats\n")
    report = took(project, site)
    assert statuses(report) == {"owls": "indexed", "bats": "failed", "notes.md": "indexed", "gone": "failed"}
    assert report.pages[1].code == "INVALID_METADATA"


def test_killed_import_keeps_stored_batches(project, site):
    """The first batch is in; the page after it hangs."""
    reached, killed = threading.Event(), threading.Event()

    def hang(_request):
        reached.set()
        killed.wait(60)

    paths = [f"/{number}.txt" for number in range(take_pages.BATCH_PAGES + 2)]
    site.pages |= {path: (200, {"Content-Type": "text/plain"}, f"Page {path}".encode()) for path in paths}
    site.pages |= {paths[-1]: hang, "/sitemap.txt": "".join(f"{site.url(path)}\n" for path in paths)}
    command = [SCRIPT, "import", "--sitemap", site.url("/sitemap.txt"), "--library", "web"]
    with subprocess.Popen(command, cwd=project.top, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert reached.wait(60)
        process.kill()
    killed.set()
    assert len(project.ask("list", "--collection", "web")["documents"]) == take_pages.BATCH_PAGES
    site.pages[paths[-1]] = (200, {"Content-Type": "text/plain"}, b"the last one")
    report = project.ask("import", "--sitemap", site.url("/sitemap.txt"), "--library", "web")
    assert Counter(page["status"] for page in report["pages"]) == {"unchanged": take_pages.BATCH_PAGES, "indexed": 2}


def test_host_is_contacted_at_its_crawl_delay(project, site, monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr("vmrag_link.toolsets.libraries.web.robots.sleep", waited.append)
    monkeypatch.setattr(
        "vmrag_link.toolsets.libraries.web.robots.monotonic", lambda: 100.0
    )  # no work takes any of the time
    site.pages["/robots.txt"] = "User-agent: *\nDisallow: /notes.md\nCrawl-delay: 2\n"
    said = project.vmrag("import", "--sitemap", site.url("/sitemap.txt"), "--library", "web", code=1)
    assert "wants 2 s between two pages." in said.err
    assert waited == [0, 2, 2]
    waited.clear()
    assert len(refreshed(project, "web").pages) == 2
    assert waited == [0, 2]


def test_refresh_without_pages_suggests_an_import(project):
    assert "vmrag import URL --library NAME" in project.vmrag("refresh").out
