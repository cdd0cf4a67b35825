"""By whose certificates a server proves who it is."""

from __future__ import annotations

import functools
import ssl

import certifi
import truststore


@functools.cache
def certificates() -> ssl.SSLContext:
    """Those that this machine trusts, as pip does it: the system's store, where a company's own
    authority is, and Mozilla's list for machines without one. `SSL_CERT_FILE` counts as well.
    """
    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context
