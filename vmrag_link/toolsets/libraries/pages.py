"""Pages for libraries: the current content of a URL, and the hosts that vmrag may contact.

The text of a URL leaves this machine when a host is contacted. An agent can name only hosts that
this machine's user trusts: an untrusted text can have told it what to put into a URL. `vmrag
refresh` contacts only hosts from which this user has imported pages: a fetched knowledge base can
name any host. A person who types a URL trusts its host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from vmrag_link.documents import library_origin
from vmrag_link.errors import GitFailed, RemoteNotTrusted, UsageInvalid, quoted
from vmrag_link.git import configuration
from vmrag_link.models import Document
from vmrag_link.toolsets.libraries.web.addresses import limits_of, private_hosts
from vmrag_link.toolsets.libraries.web.fetching import fetch_page
from vmrag_link.toolsets.libraries.web.urls import PageUrl, parse_url
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.named_files import SourceContent, hash_of

TRUSTED_KEY = "vmrag.trustedHost"
"""Key in git config: a host (`HOST` or `HOST:PORT`) from which agents can fetch pages."""

PAGES_KEY = "vmrag.pageHost"
"""Key in git config: a host from which this user has imported pages, which `vmrag refresh`
contacts.
"""

Admit = Callable[[PageUrl], None]
"""Raises `RemoteNotTrusted` for a page that may not be fetched. Each redirection is also a page."""


def admit_typed(ws: Workspace) -> Admit:
    """Return the check for URLs that a person types: it trusts every host, and remembers it."""

    def admit(page: PageUrl) -> None:
        if _is_trusted(ws, page, PAGES_KEY):
            return
        try:
            configuration.add_value(ws.places, PAGES_KEY, page.site)
        except GitFailed as failed:  # locked or read-only: the page is still available
            ws.progress.note(
                f"For vmrag refresh it could not be remembered that you asked {page.site}: {failed.message}"
            )

    return admit


def admit_stored(ws: Workspace) -> Admit:
    """Return the check for URLs that the knowledge base names."""

    def admit(page: PageUrl) -> None:
        if not _is_trusted(ws, page, PAGES_KEY) and not _is_trusted(ws, page, TRUSTED_KEY):
            raise RemoteNotTrusted(
                f"did not fetch {page}: no page of {page.site} was ever imported on this machine, and the knowledge base may be untrusted.",
                hint=f"run 'git config --add {PAGES_KEY} {quoted(page.site)}' if you know whose it is",
                host=page.site,
                url=page.text,
            )

    return admit


def admit_from_agent(ws: Workspace, *, agreed: Collection[str]) -> Admit:
    """Return the check for URLs in an agent's arguments.

    `agreed` has the hosts that the user confirmed. The details of the error contain `ask`: the
    server can ask the user.
    """

    def admit(page: PageUrl) -> None:
        if page.site not in agreed and not _is_trusted(ws, page, TRUSTED_KEY):
            raise RemoteNotTrusted(
                f"did not fetch a page of {page.site}: the user has not trusted it for agents.",
                hint=f"run 'git config --add {TRUSTED_KEY} {quoted(page.site)}' if you know whose it is",
                host=page.site,
                url=page.text,
                ask=True,
            )

    return admit


def trust_host(ws: Workspace, site: str) -> None:
    """Let agents in this repository fetch pages from this host from now on."""
    if site not in configuration.read_config_values(ws.places, TRUSTED_KEY):
        configuration.add_value(ws.places, TRUSTED_KEY, site)


def _is_trusted(ws: Workspace, page: PageUrl, key: str) -> bool:
    """Return whether this machine's git configuration names the host, or the user allowed it as
    private.
    """
    if page.host in private_hosts(ws.config.ingest.allow_private_urls):
        return True
    return page.site in {
        _parse_site(page.scheme, config_value) for config_value in configuration.read_config_values(ws.places, key)
    }


def _parse_site(scheme: str, text: str) -> str:
    try:
        return parse_url(f"{scheme}://{text}/").site
    except UsageInvalid:
        return ""


FILE_TYPE = "url"


def key_of(url: str) -> str:
    """Return the key by which a library identifies the page.

    Raises `UsageInvalid` for an invalid URL.
    """
    return parse_url(url).text


def read_page(ws: Workspace, url: str, before: Document | None, admit: Admit) -> SourceContent:
    """Fetch a page. `before` is its stored document; `admit` decides about each host.

    Raises the errors of `web.fetching.fetch_page`.
    """
    stored_origin = library_origin.read_origin(before) if before else None
    limits = limits_of(ws.config.ingest, admit)
    if before and stored_origin:
        fetched = fetch_page(url, limits=limits, etag=stored_origin.etag, last_modified=before.last_modified)
    else:
        fetched = fetch_page(url, limits=limits)
    key = key_of(url)
    parts = urlsplit(key)
    return SourceContent(
        key,
        unquote(PurePosixPath(parts.path).name) or parts.netloc,
        stored_origin.hash if stored_origin and fetched.unchanged else hash_of(fetched.data),
        fetched.data,
        last_modified=fetched.last_modified,
        file_type=FILE_TYPE,
        media_type=fetched.media_type,
        charset=fetched.charset,
        etag=fetched.etag,
    )
