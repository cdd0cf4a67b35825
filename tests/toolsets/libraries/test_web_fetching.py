"""Pages come from a real server of this machine, however it behaves."""

from __future__ import annotations

import base64
import gzip
import socket
import sys
import threading
import time
import zlib

import pytest

from tests.support.certificates import signed_certificate
from tests.support.pace import slack
from tests.support.websites import HERE, limits, website
from vmrag_link.errors import AccessDenied, FetchFailed, IndexExtraMissing, RemoteNotTrusted, UsageInvalid, VmragError
from vmrag_link.settings import IngestSettings
from vmrag_link.toolsets.libraries.web.addresses import FetchLimits, Resolver, is_anything, limits_of
from vmrag_link.toolsets.libraries.web.asking import load_certificates
from vmrag_link.toolsets.libraries.web.fetching import Fetched, fetch_page


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def site():
    with website() as made:
        yield made


def refusal(url, kind=FetchFailed, **more) -> VmragError:
    with pytest.raises(kind) as caught:
        fetch_page(url, limits=more.pop("limits", None) or limits(**more))
    assert caught.value.hint
    return caught.value


def redirect(to, status=302):
    return (status, {"Location": to}, b"elsewhere")


def test_page_has_the_headers_of_its_server(site):
    headers = {
        "Content-Type": "Text/HTML; Charset=UTF-8",
        "ETag": '"v1"',
        "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT",
    }
    site.pages["/a%20b?x=%C3%A4"] = (200, headers, b"<p>hello")
    assert fetch_page(site.url("/a%20b?x=\u00e4#part"), limits=limits()) == Fetched(
        url=site.url("/a%20b?x=%C3%A4"),
        data=b"<p>hello",
        media_type="text/html",
        charset="utf-8",
        etag='"v1"',
        last_modified="2015-10-21T07:28:00Z",
    )
    [request] = site.requests
    assert request.headers["user-agent"].startswith("vmrag-link/")
    assert "authorization" not in request.headers
    assert "if-none-match" not in request.headers


@pytest.mark.parametrize(
    ("content_type", "body", "charset"),
    [
        ("text/html; charset=iso-8859-1", b"x", "windows-1252"),
        ('text/html; charset="shift_jis"', b"x", "shift_jis"),
        ("text/html; charset=klingon", b"x", ""),
        ("text/html", b"x", ""),
        ("text/html; charset=iso-8859-1", b"\xef\xbb\xbfx", "utf-8"),
        ("text/plain; charset=utf-8", b"\xff\xfex\0", "utf-16-le"),
    ],
)
def test_charset_is_from_the_byte_order_mark_or_the_header(site, content_type, body, charset):
    site.pages["/"] = (200, {"Content-Type": content_type}, body)
    assert fetch_page(site.url(), limits=limits()).charset == charset


def test_invalid_headers_are_ignored(site):
    site.pages["/"] = (200, {"Content-Type": "words", "ETag": "v 1", "Last-Modified": "yesterday"}, b"x")
    assert fetch_page(site.url(), limits=limits()) == Fetched(url=site.url(), data=b"x")


def test_page_that_did_not_change_is_not_sent_again(site):
    def unless_known(request):
        is_unchanged = request.headers["If-None-Match"] == '"v1"' or request.headers["If-Modified-Since"] == DATE
        request.send_response(304 if is_unchanged else 200)
        request.send_header("ETag", '"v1"')
        request.end_headers()

    site.pages |= {"/": unless_known, "/old": redirect("/", 301)}
    for validators in ({"etag": '"v1"'}, {"last_modified": "2015-10-21T07:28:00Z"}):
        page = fetch_page(site.url("/old"), limits=limits(), **validators)
        assert (page.unchanged, page.data, page.etag, page.url) == (True, b"", '"v1"', site.url())
    assert not fetch_page(site.url(), limits=limits(), etag='"v0"').unchanged
    # A text of an untrusted knowledge base is sent only if it is an ETag.
    assert not fetch_page(site.url(), limits=limits(), etag='"v1"\r\nX-Evil: 1', last_modified="now").unchanged
    assert "if-none-match" not in site.requests[-1].headers


DATE = "Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.mark.parametrize(
    ("answer", "status", "hint"),
    [
        ((404, {}, b"no"), 404, "look in a browser where the page is now"),
        ((401, {"WWW-Authenticate": "Basic"}, b"no"), 401, "save it in a browser"),
        ((500, {}, b"no"), 500, "try again later"),
        ((503, {"Retry-After": "30"}, b"no"), 503, "try again in 30 s"),
        ((204, {}, b""), 204, "later"),
        ((206, {}, b"half"), 206, "later"),
        ((304, {}, b""), 304, "later"),
        ((302, {}, b"no location"), 302, "later"),
        ((799, {}, b"?"), 799, "later"),
    ],
)
def test_error_status_of_a_page_is_reported(site, answer, status, hint):
    site.pages["/"] = answer
    error = refusal(site.url())
    assert (error.code, error.details["http_status"]) == ("FETCH_FAILED", status)
    assert hint in error.hint
    assert str(status) in error.message


# -- redirections


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirections_are_followed(site, status):
    site.pages |= {"/a": redirect("b c?\u00e9", status), "/b%20c?%C3%A9": "there"}
    page = fetch_page(site.url("/a"), limits=limits())
    assert (page.data, page.url) == (b"there", site.url("/b%20c?%C3%A9"))


def test_five_redirections_are_followed_and_not_six(site):
    site.pages |= {f"/{step}": redirect(f"/{step + 1}") for step in range(6)} | {"/6": "there"}
    assert fetch_page(site.url("/1"), limits=limits()).data == b"there"
    assert "more than 5 times" in refusal(site.url("/0")).message


@pytest.mark.parametrize("to", ["file:///etc/passwd", "gopher://127.0.0.1/", "http://[::1", "javascript:alert(1)"])
def test_redirection_to_something_else_than_a_page_is_not_followed(site, to):
    site.pages["/"] = redirect(to)
    assert "redirects to what cannot be fetched" in refusal(site.url()).message


PRIVATE = [
    "127.0.0.2",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "[ff02::1]",
    "[::ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::a00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "2130706434",  # 127.0.0.2 in the ways of the C library
    "0x7f.2",
    "127.2",
    "0177.0.0.2",
]


@pytest.mark.parametrize("host", PRIVATE)
def test_private_addresses_are_refused_also_after_a_redirection(site, host):
    refusal(f"http://{host}:{site.port}/", AccessDenied)
    site.pages["/"] = redirect(f"http://{host}:{site.port}/secret")
    error = refusal(site.url(), AccessDenied)
    assert error.code == "ACCESS_DENIED"
    assert f"{site.url()} redirects to http://" in error.message
    assert "vmrag.ingest.allow-private-urls" in error.hint
    assert [request.path for request in site.requests] == ["/"]


def test_this_machine_is_refused_unless_it_is_allowed(site):
    site.pages["/"] = "mine"
    for host in ("127.0.0.1", "LocalHost"):
        refusal(site.url(host=host), AccessDenied, limits=allowing(""))
    assert site.requests == []
    assert fetch_page(site.url(), limits=allowing("127.1")).data == b"mine"


def allowing(private: str) -> FetchLimits:
    return limits_of(IngestSettings(allow_private_urls=private), lambda _: None)


def test_only_listed_hosts_may_be_private_in_any_spelling(site):
    site.pages["/"] = "mine"
    for host in ("localhost", "LOCALHOST.", "127.0.0.2", "0x7f.2", "[::1]"):
        error = refusal(site.url(host=host), AccessDenied, limits=allowing("127.0.0.1, wiki.corp.example"))
        assert "vmrag.ingest.allow-private-urls 127.0.0.1,wiki.corp.example," in error.hint
    assert site.requests == []
    for host in ("127.0.0.1", "127.1", "0177.0.0.1", "2130706433", "0x7f000001", "127.0.0.1."):
        assert fetch_page(site.url(host=host), limits=allowing("127.0.0.1")).data == b"mine"
        assert fetch_page(site.url(), limits=allowing(host)).data == b"mine"
        assert site.requests[-1].headers["host"] == f"127.0.0.1:{site.port}"
    assert fetch_page(site.url(host="LocalHost."), limits=allowing("localhost")).data == b"mine"
    site.pages["/on"] = redirect(site.url("/", host="localhost"))
    refusal(site.url("/on"), AccessDenied, limits=allowing("127.0.0.1"))


def test_forbidden_page_causes_no_name_lookup(site):
    looked_up = []

    def refuse(page):
        raise RemoteNotTrusted(f"not {page.site}", hint="ask")

    def lookup(host):
        looked_up.append(host)
        return [str(HERE)]

    refusal("http://secret.collector.example/", RemoteNotTrusted, lookup=lookup, admit=refuse)
    assert looked_up == []
    error = refusal("http://10.0.0.1/", AccessDenied, admit=refuse)  # a yes would not help
    assert "10.0.0.1 is an address in one" in error.message


def test_name_is_refused_if_any_of_its_addresses_is_private(site):
    def lookup(host):
        return [str(HERE), "10.0.0.1"]

    assert (
        "docs.example leads to 10.0.0.1" in refusal(site.url(host="docs.example"), AccessDenied, lookup=lookup).message
    )
    assert site.requests == []


def test_dns_that_changes_its_answer_leads_nowhere_else(site):
    """The second answer would be a private address: it is not asked for, or it is refused."""
    answers = []

    def lookup(host):
        answers.append(host)
        return [str(HERE)] if len(answers) == 1 else ["127.0.0.2"]

    site.pages |= {"/": "first", "/again": redirect("/")}
    assert fetch_page(site.url(host="rebind.example"), limits=limits(lookup)).data == b"first"
    assert answers == ["rebind.example"]
    answers.clear()
    refusal(site.url("/again", host="rebind.example"), AccessDenied, lookup=lookup)
    assert [request.path for request in site.requests] == ["/", "/again"]
    assert site.requests[0].headers["host"] == f"rebind.example:{site.port}"


def test_next_address_is_tried_after_a_refused_connection(site):
    site.pages["/"] = "there"
    resolver = Resolver(permits=is_anything, lookup=lambda _: ["127.0.0.3", str(HERE)])
    page = fetch_page(site.url(host="two.example"), limits=FetchLimits(timeout_s=5, resolver=resolver))
    assert page.data == b"there"


def test_unknown_host_is_reported():
    def lookup(host):
        raise socket.gaierror(-2, "Name or service not known")

    assert "no such host: nowhere.example" in refusal("http://nowhere.example/", lookup=lookup).message


# -- credentials


def test_credentials_go_to_their_own_host_only_and_are_never_shown(site):
    with website() as other:
        site.pages |= {"/": redirect("/there"), "/there": redirect(other.url("/"))}
        other.pages["/"] = redirect(other.url("/end").replace("://", "://giver:given@"))
        other.pages["/end"] = "x"
        page = fetch_page(site.url().replace("://", "://us%40er:s3cret@"), limits=limits())
        assert page.url == other.url("/end")
        sent = "Basic " + base64.b64encode(b"us@er:s3cret").decode()
        assert [request.headers.get("authorization") for request in site.requests] == [sent, sent]
        assert [request.headers.get("authorization") for request in other.requests] == [None, None]


@pytest.mark.parametrize(
    "url",
    [
        "http://me:s3cret@127.0.0.1:1/x",
        "ftp://me:s3cret@host/",
        "me:s3cret@host/x",
        "http://me:s3cret@[::1/",
        "http://me:x/s3cret@host/",
        "http://me:s3cret@host\\x/",
    ],
)
def test_messages_show_no_credentials(url):
    with pytest.raises(VmragError) as caught:
        fetch_page(url, limits=limits())
    assert "s3cret" not in str(caught.value.to_dict())


@pytest.mark.parametrize(
    "url",
    ["", "docs/a.md", "file:///etc/passwd", "http:///x", "http://a b/", "http://x\\@y/", "http://h:0/", "http://-/"],
)
def test_invalid_url_is_a_usage_error(url):
    assert refusal(url, UsageInvalid).code == "INVALID_PARAMETER"


# -- size and time


def test_page_may_be_as_large_as_is_allowed_and_no_larger(site):
    site.pages |= {"/fits": b"x" * 1000, "/large": b"x" * 1001}
    assert len(fetch_page(site.url("/fits"), limits=limits(max_bytes=1000)).data) == 1000
    error = refusal(site.url("/large"), max_bytes=1000)
    assert "is larger than 1,000 bytes (ingest.max_bytes)" in error.message


def test_body_without_an_end_is_cut_off(site):
    def endless(request):
        request.send_response(200)
        request.end_headers()
        for _ in range(100_000):
            request.wfile.write(b"x" * 10_000)

    site.pages["/"] = endless
    assert "is larger" in refusal(site.url(), max_bytes=100_000).message


def test_compressed_answers_are_unpacked_within_the_limit(site):
    packed = {"Content-Encoding": "gzip"}
    two = gzip.compress(b"first ") + gzip.compress(b"second")
    bomb = gzip.compress(b"\0" * 30_000_000)
    site.pages |= {
        "/two": (200, packed, two + bytes(9000)),
        "/none": (200, packed, b""),
        "/pieces": (200, packed, gzip.compress(b"") * 500_000),
        "/bomb": (200, packed, bomb),
        "/cut": (200, packed, two[:-5]),
        "/no": (200, packed, b"plain"),
        "/br": (200, {"Content-Encoding": "br"}, b"x"),
        "/zlib": (200, {"Content-Encoding": "gzip"}, zlib.compress(b"x")),
    }
    assert fetch_page(site.url("/two"), limits=limits()).data == b"first second"
    assert len(bomb) < 1_000_000
    assert "is larger" in refusal(site.url("/bomb"), max_bytes=1_000_000).message
    assert fetch_page(site.url("/none"), limits=limits()).data == b""
    for path in ("/cut", "/no", "/br", "/zlib", "/pieces"):
        assert "cannot be unpacked" in refusal(site.url(path)).message


def drip(request):
    """Headers that come one byte at a time, each long before a read times out."""
    for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000:
        request.wfile.write(bytes([byte]))
        request.wfile.flush()
        time.sleep(0.05)


def drip_body(request):
    request.send_response(200)
    request.end_headers()
    for _ in range(1000):
        request.wfile.write(b"x")
        request.wfile.flush()
        time.sleep(0.05)


def silent(request):
    time.sleep(2)


@pytest.mark.parametrize("behaviour", [drip, drip_body, silent])
def test_limit_of_time_is_for_everything_together(site, behaviour):
    site.pages |= {"/": behaviour, "/first": redirect("/")}
    begun = time.monotonic()
    error = refusal(site.url("/first"), timeout_s=0.4)
    assert time.monotonic() - begun < 5 * slack()
    assert "did not answer within 0.4 s (ingest.timeout_s)" in error.message


def test_name_server_that_does_not_answer_takes_no_longer_than_allowed():
    gone = threading.Event()
    error = refusal("http://slow.example/", lookup=lambda _: gone.wait(30) or [], timeout_s=0.2)
    gone.set()
    assert "did not answer within 0.2 s" in error.message


@pytest.mark.parametrize("said", [b"", b"\x1b[2Jnot http\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx"])
def test_incomplete_answer_is_reported_in_printable_text(site, said):
    site.pages["/"] = lambda request: request.wfile.write(said)
    message = refusal(site.url()).message
    assert message.isprintable()
    assert "cannot be fetched" in message


def test_refused_connection_is_reported():
    with website() as gone:
        url = gone.url()
    assert refusal(url).message == f"{url} cannot be fetched: Connection refused."


# -- encryption


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """Serve an encrypted site for docs.example; return it with the file of its untrusted
    authority.
    """
    files = signed_certificate(tmp_path, "server", "docs.example")
    load_certificates.cache_clear()
    with website(certificate=files[1:]) as made:
        made.pages["/"] = "private talk"
        yield made, files[0]
    load_certificates.cache_clear()


def here(_host):
    return [str(HERE)]


def test_server_is_verified_by_its_name(authority, monkeypatch):
    site, file = authority
    error = refusal(site.url(host="docs.example"), lookup=here)
    assert "no signature that this machine trusts" in error.message
    assert "SSL_CERT_FILE" in error.hint
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    load_certificates.cache_clear()
    assert fetch_page(site.url(host="docs.example"), limits=limits(here)).data == b"private talk"
    assert "another host" in refusal(site.url(host="other.example"), lookup=here).message


# -- proxies


def test_proxy_of_the_environment_is_used_and_private_names_are_rejected(site, monkeypatch):
    def lookup(host):
        if host in addresses:
            return [addresses[host]]
        raise socket.gaierror(-2, "Name or service not known")

    addresses = {"127.0.0.1": "127.0.0.1", "inside.example": "10.0.0.1"}
    site.pages["http://outside.example/x"] = "by the proxy"
    monkeypatch.setenv("http_proxy", site.url().replace("://", "://me:pw@"))
    page = fetch_page("http://outside.example/x", limits=limits(lookup))
    assert (page.data, page.url) == (b"by the proxy", "http://outside.example/x")
    assert site.requests[0].headers["proxy-authorization"].startswith("Basic ")
    for host in ("inside.example", "wiki", "metadata.google.internal", "127.0.0.2"):
        refusal(
            f"http://{host}/", AccessDenied, lookup=lambda host: ["127.0.0.2"] if host == "127.0.0.2" else lookup(host)
        )
    monkeypatch.setenv("no_proxy", "direct.example")
    addresses["direct.example"] = "127.0.0.1"
    site.pages["/direct"] = "direct"
    assert fetch_page(site.url("/direct", host="direct.example"), limits=limits(lookup)).data == b"direct"
    assert len(site.requests) == 2


def test_unusable_proxy_is_reported_without_credentials(site, monkeypatch):
    def nowhere(host):
        return ["127.0.0.1"] if host == "127.0.0.1" else []

    monkeypatch.setenv("all_proxy", "socks5://me:s3cret@127.0.0.1:1080")
    error = refusal("https://outside.example/", lookup=nowhere)
    assert "cannot use the proxy socks5://…@127.0.0.1:1080 of the environment" in error.message
    monkeypatch.setenv("https_proxy", site.url())
    error = refusal("https://outside.example/", lookup=nowhere)
    assert "the proxy of the environment answered 403" in error.message
    assert "https_proxy" in error.hint


def test_encrypted_server_behind_a_proxy_is_verified_by_its_name(site, authority, monkeypatch):
    encrypted, file = authority
    site.tunnels = True
    monkeypatch.setenv("https_proxy", site.url())
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    page = fetch_page(
        encrypted.url(host="docs.example"), limits=limits(lambda host: [host] if host == str(HERE) else [])
    )
    assert page.data == b"private talk"
    assert [request.path for request in site.requests] == [f"docs.example:{encrypted.port}"]
    error = refusal(encrypted.url(host="other.example"), lookup=lambda host: [host] if host == str(HERE) else [])
    assert "another host" in error.message


def test_base_installation_reports_missing_packages_for_fetching(monkeypatch):
    for name in ("asking", "certificates", "connection", "proxies"):
        monkeypatch.delitem(sys.modules, f"vmrag_link.toolsets.libraries.web.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "httpcore", None)
    with pytest.raises(IndexExtraMissing, match="Fetching pages needs httpcore") as caught:
        fetch_page("https://docs.example/", limits=limits())
    assert caught.value.hint == "run 'pip install \"vmrag-link[web]\"' to install it"
