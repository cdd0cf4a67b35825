"""Sitemaps and robots.txt of a real server of this machine."""

from __future__ import annotations

import gzip

import pytest

from tests.support.websites import HERE, limits, website
from vmrag_link.errors import AccessDenied, FetchFailed
from vmrag_link.toolsets.libraries.web import sitemap
from vmrag_link.toolsets.libraries.web.robots import MAX_DELAY_SECONDS
from vmrag_link.toolsets.libraries.web.sitemap import MAX_LOCATIONS, NotASitemap, Sitemap, SitemapFile, read_sitemap

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


@pytest.fixture
def site():
    with website() as made:
        yield made


def urlset(*urls):
    return f"<urlset {NAMESPACE}>{''.join(f'<url><loc> {url} </loc></url>' for url in urls)}</urlset>"


def index(*urls):
    return f"<sitemapindex {NAMESPACE}>{''.join(f'<sitemap><loc>{url}</loc></sitemap>' for url in urls)}</sitemapindex>"


def found(site, path="/sitemap.xml", **more) -> Sitemap:
    return sitemap.list_pages(site.url(path), limits=limits(), **more)


def test_sitemap_pages_are_imported_once_in_order_from_its_host(site):
    site.pages["/sitemap.xml"] = urlset(
        site.url("/b"),
        site.url("/a?x=1&amp;y=2"),
        site.url("/b#part"),
        "http://elsewhere.example/",
        f"http://127.0.0.1:{site.port + 1}/",
        "no url",
        "",
    )
    assert found(site) == Sitemap([site.url("/b"), site.url("/a?x=1&y=2")], elsewhere=2, invalid=2)


def test_sitemap_leaves_out_and_counts_disallowed_pages(site):
    site.pages["/robots.txt"] = (
        "User-agent: *\nDisallow: /\n\nUser-agent: vmrag-link\nDisallow: /private*/\nAllow: /private/open\nCrawl-delay: 7\n"
    )
    paths = ("/a", "/private/x", "/private/open", "/private-too/x")
    site.pages["/sitemap.xml"] = urlset(*map(site.url, paths))
    assert found(site) == Sitemap([site.url("/a"), site.url("/private/open")], disallowed=2, delay_s=7.0)
    assert [request.path for request in site.requests] == ["/sitemap.xml", "/robots.txt"]
    site.pages["/robots.txt"] = "User-agent: *\nCrawl-delay: 3600\n"
    assert found(site).delay_s == MAX_DELAY_SECONDS


def test_unavailable_robots_txt_stops_the_import(site):
    site.pages |= {"/sitemap.xml": urlset(site.url("/a")), "/robots.txt": (503, {}, b"")}
    with pytest.raises(FetchFailed, match=r"cannot read the robots\.txt of 127\.0\.0\.1:\d+"):
        found(site)


def test_sitemap_index_is_followed_and_failures_are_listed(site):
    site.pages |= {
        "/sitemap.xml": index(
            site.url("/one.xml.gz"),
            site.url("/two.txt"),
            site.url("/gone.xml"),
            site.url("/page.html"),
            "http://elsewhere.example/sitemap.xml",
            site.url("/sitemap.xml"),
        ),
        "/one.xml.gz": gzip.compress(urlset(site.url("/1")).encode()),
        "/two.txt": f"{site.url('/2')}\r\n\r\n{site.url('/1')}\n",
        "/page.html": "<html><p>no sitemap",
    }
    answer = found(site)
    assert (answer.pages, answer.elsewhere) == ([site.url("/1"), site.url("/2")], 1)
    gone, page = answer.failures
    assert "answered 404" in gone
    assert "begins with <html>" in page
    assert [request.path for request in site.requests].count("/sitemap.xml") == 1


def test_missing_sitemap_hint_names_that_of_robots_txt(site):
    site.pages["/"] = "<!DOCTYPE html><p>welcome"
    with pytest.raises(FetchFailed, match="is not a sitemap: it has a DOCTYPE") as caught:
        found(site, "/")
    assert "names no sitemap in its robots.txt" in caught.value.hint
    site.pages["/robots.txt"] = f"Sitemap: {site.url('/map.xml')}\n"
    with pytest.raises(FetchFailed) as caught:
        found(site, "/")
    assert caught.value.hint == f"use the sitemap that its host names: {site.url('/map.xml')}"


def test_sitemap_may_speak_for_the_host_that_it_redirects_to():
    with website() as old, website() as new:
        old.pages["/sitemap.xml"] = (301, {"Location": new.url("/sitemap.xml")}, b"")
        new.pages["/sitemap.xml"] = urlset(new.url("/a"), old.url("/b"), "http://third.example/")
        assert found(old) == Sitemap([new.url("/a"), old.url("/b")], elsewhere=1)


def test_pages_sitemaps_and_levels_are_limited(site, monkeypatch):
    site.pages["/sitemap.xml"] = urlset(*(site.url(f"/{number}") for number in range(5)))
    assert found(site, max_pages=3) == Sitemap([site.url(f"/{number}") for number in range(3)], more=2)
    site.pages |= {f"/level{step}.xml": index(site.url(f"/level{step + 1}.xml")) for step in range(1, 9)}
    assert found(site, "/level1.xml") == Sitemap([], more=1)
    assert "/level4.xml" not in [request.path for request in site.requests]
    monkeypatch.setattr(sitemap, "MAX_SITEMAPS", 3)
    site.pages |= {f"/part{part}.xml": urlset(site.url(f"/{part}")) for part in range(4)}
    site.pages["/many.xml"] = index(*(site.url(f"/part{part}.xml") for part in range(4)))
    assert found(site, "/many.xml") == Sitemap([site.url("/0"), site.url("/1")], more=2)
    site.requests.clear()
    assert found(site, "/many.xml", max_pages=1) == Sitemap([site.url("/0")], more=3)
    assert [request.path for request in site.requests] == ["/many.xml", "/part0.xml", "/robots.txt"]
    monkeypatch.setattr(sitemap, "MAX_LOCATIONS", 3)
    assert found(site, max_pages=9) == Sitemap([site.url(f"/{number}") for number in range(3)], more=2)


def test_sitemap_with_a_private_address_ends_there(site):
    site.pages["/sitemap.xml"] = (302, {"Location": "http://10.0.0.1/sitemap.xml"}, b"")
    with pytest.raises(AccessDenied, match="10\\.0\\.0\\.1"):
        found(site)
    moving = iter([[str(HERE)], [str(HERE)], ["10.0.0.1"]])
    site.pages["/sitemap.xml"] = urlset(site.url("/a", host="moving.example"))
    site.pages["/index.xml"] = index(site.url("/sitemap.xml", host="moving.example"))
    with pytest.raises(AccessDenied, match="10\\.0\\.0\\.1"):
        sitemap.list_pages(site.url("/index.xml", host="moving.example"), limits=limits(lambda _: next(moving)))


# -- files


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not XML"),
        (b"<urlset>", "is not XML"),
        (b"<rss><channel/></rss>", "begins with <rss>"),
        (b"<!DOCTYPE html><html></html>", "DOCTYPE"),
        (b'<!DOCTYPE u [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><urlset>&b;</urlset>', "DOCTYPE"),
        (b'<!DOCTYPE u [<!ENTITY a SYSTEM "file:///etc/passwd">]><urlset>&a;</urlset>', "DOCTYPE"),
        (b"<urlset>&undeclared;</urlset>", "undefined entity"),
        (b'<?xml version="1.0" encoding="klingon"?><urlset/>', "encoding"),
        (b'<?xml version="1.0" encoding="shift_jis"?><urlset/>', "encoding"),
        (b"<urlset>" + b"<x>" * 200_000, "deeper than 100 levels"),
        (b"<urlset>" + b"<x/>" * 1_100_000, "more than 1,000,000 elements"),
        (gzip.compress(b" " * 2_000_000, mtime=0), "more than 1,000,000 bytes unpacked"),
        (gzip.compress(b"<urlset/>", mtime=0)[:-6], "cannot be unpacked"),
    ],
)
def test_read_sitemap_rejects_other_data(data, reason):
    with pytest.raises(NotASitemap, match=reason):
        read_sitemap(data, 1_000_000)


def test_only_the_pages_of_a_sitemap_are_taken_from_its_xml():
    image = '<image:image xmlns:image="urn:image"><image:loc>http://h/i.png</image:loc></image:image>'
    text = f"<urlset><url><loc>http://h/<![CDATA[a]]>&amp;b</loc>{image}<lastmod>2026</lastmod></url><loc>http://h/no</loc></urlset>"
    assert read_sitemap(text.encode("utf-16"), 10_000) == SitemapFile(["http://h/a&b"])
    deep = "<x>" * 90 + "</x>" * 90
    assert read_sitemap(f"<urlset>{deep}<url><loc>http://h/</loc></url></urlset>".encode(), 10**7).locations == [
        "http://h/"
    ]


@pytest.mark.parametrize("line", ["http://h/\n", "<url><loc>http://h/</loc></url>"])
def test_file_of_more_urls_than_the_protocol_allows_is_cut(line):
    text = line * (MAX_LOCATIONS + 5)
    file = read_sitemap((text if line.endswith("\n") else f"<urlset>{text}</urlset>").encode(), 10**7)
    assert (len(file.locations), file.more) == (MAX_LOCATIONS, 5)
