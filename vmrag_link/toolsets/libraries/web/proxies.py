"""The proxy that the environment names for a URL, as other programs of this machine use it.

A proxy resolves names by itself, so nobody here can check where a name leads behind it. It is used
all the same: where one is set there is often no other way out, and it is the person that set it.
"""

from __future__ import annotations

from urllib.parse import unquote_to_bytes, urlsplit

import httpcore

from vmrag_link import hosts
from vmrag_link.errors import FetchFailed
from vmrag_link.toolsets.libraries.web.certificates import certificates
from vmrag_link.toolsets.libraries.web.urls import PageUrl, shown_url


def proxy_for(url: PageUrl) -> httpcore.Proxy | None:
    """None: the page's host is asked directly. Raises `FetchFailed` for a proxy of another kind."""
    from urllib import request  # reads the variables as curl and git do, and macOS's own settings

    proxies = request.getproxies()
    text = proxies.get(url.scheme) or proxies.get("all")
    if not text or hosts.is_loopback(url.host) or request.proxy_bypass(f"{url.host}:{url.port}"):
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        raise FetchFailed(
            f"The proxy {shown_url(text)} of the environment cannot be used for {url}: it is no http:// or https:// one.",
            hint=f"Name an HTTP proxy in {url.scheme}_proxy, or none for this host: export no_proxy={url.host}",
        )
    where = httpcore.URL(scheme=parts.scheme, host=host, port=port, target="/")
    auth = (unquote_to_bytes(parts.username), unquote_to_bytes(parts.password or "")) if parts.username else None
    return httpcore.Proxy(where, auth=auth, ssl_context=certificates() if parts.scheme == "https" else None)
