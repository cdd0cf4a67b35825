"""Pages for libraries: what a URL leads to now, if that has changed, and which hosts may be asked:
what a URL says to a host leaves this machine.

An agent may name hosts that this machine's person agreed to: a stranger's text may have told it
what to put into a URL. `vmrag refresh` asks hosts from which this person took pages: a fetched
knowledge base names whichever its author likes. A person who types a URL agrees to its host, and to
where it redirects. That opens the host for refreshing, and not for agents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from vmrag_link.documents import import_base
from vmrag_link.errors import GitFailed, RemoteNotTrusted, UsageInvalid, quoted
from vmrag_link.git import configuration
from vmrag_link.models import Document
from vmrag_link.toolsets.libraries.web.addresses import limits_of, private_hosts
from vmrag_link.toolsets.libraries.web.fetching import fetch_page
from vmrag_link.toolsets.libraries.web.urls import PageUrl, parse_url
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.named_files import SourceContent, hash_of

TRUSTED_KEY = "vmrag.trustedHost"
"""Key in git config: a host (`HOST` or `HOST:PORT`) that agents may have pages fetched from."""

PAGES_KEY = "vmrag.pageHost"
"""Key in git config: a host from which this person took pages, which may be asked again."""

Admit = Callable[[PageUrl], None]
"""Raises `RemoteNotTrusted` for a page that may not be asked for; each redirection is a page."""


def admit_typed(ws: Workspace) -> Admit:
    """For URLs that a person types: every host is agreed to, and remembered for `admit_stored`."""

    def admit(page: PageUrl) -> None:
        if _is_agreed_to(ws, page, PAGES_KEY):
            return
        try:
            configuration.add_value(ws.places, PAGES_KEY, page.site)
        except GitFailed as failed:  # of another process, or read-only: the page is there all the same
            ws.progress.note(
                f"For vmrag refresh it could not be remembered that you asked {page.site}: {failed.message}"
            )

    return admit


def admit_stored(ws: Workspace) -> Admit:
    """For URLs that the knowledge base names."""

    def admit(page: PageUrl) -> None:
        if not _is_agreed_to(ws, page, PAGES_KEY) and not _is_agreed_to(ws, page, TRUSTED_KEY):
            raise RemoteNotTrusted(
                f"{page.site} was not asked for {page}: nobody here has taken a page from it, and the knowledge base may be anybody's.",
                hint=f"git config --add {PAGES_KEY} {quoted(page.site)}   (only if you know whose it is)",
                host=page.site,
                url=page.text,
            )

    return admit


def admit_from_agent(ws: Workspace, *, agreed: Collection[str]) -> Admit:
    """For URLs in an agent's arguments. `agreed`: the hosts that the person confirmed.

    The error's details hold `ask`: the person can be asked.
    """

    def admit(page: PageUrl) -> None:
        if page.site not in agreed and not _is_agreed_to(ws, page, TRUSTED_KEY):
            raise RemoteNotTrusted(
                f"{page.site} was not asked for a page: nobody here has agreed that agents may send it anything.",
                hint=f"git config --add {TRUSTED_KEY} {quoted(page.site)}   (only if you know whose it is)",
                host=page.site,
                url=page.text,
                ask=True,
            )

    return admit


def trust_host(ws: Workspace, site: str) -> None:
    """Let agents in this repository have pages fetched from this host from now on."""
    if site not in configuration.read_config_values(ws.places, TRUSTED_KEY):
        configuration.add_value(ws.places, TRUSTED_KEY, site)


def _is_agreed_to(ws: Workspace, page: PageUrl, key: str) -> bool:
    """Whether this machine's git configuration names the host, or the person let it be private."""
    if page.host in private_hosts(ws.config.ingest.allow_private_urls):
        return True
    return page.site in {
        _site(page.scheme, config_value) for config_value in configuration.read_config_values(ws.places, key)
    }


def _site(scheme: str, text: str) -> str:
    try:
        return parse_url(f"{scheme}://{text}/").site
    except UsageInvalid:
        return ""


FILE_TYPE = "url"


def key_of(url: str) -> str:
    """By what a library knows the page. Raises `UsageInvalid` for what is no http or https URL."""
    return parse_url(url).text


def read_page(ws: Workspace, url: str, before: Document | None, admit: Admit) -> SourceContent:
    """The page as it is now; `before`: the document that a library has of it. `admit`
    decides about its host.

    Raises as `web.fetching.fetch`.
    """
    known = import_base.read_origin(before) if before else None
    limits = limits_of(ws.config.ingest, admit)
    if before and known:
        fetched = fetch_page(url, limits=limits, etag=known.etag, last_modified=before.last_modified)
    else:
        fetched = fetch_page(url, limits=limits)
    key = key_of(url)
    parts = urlsplit(key)
    return SourceContent(
        key,
        unquote(PurePosixPath(parts.path).name) or parts.netloc,
        known.hash if known and fetched.unchanged else hash_of(fetched.data),
        fetched.data,
        last_modified=fetched.last_modified,
        file_type=FILE_TYPE,
        media_type=fetched.media_type,
        charset=fetched.charset,
        etag=fetched.etag,
    )
