"""Credentials for git from the input `token`, and access to the checkout in a container.

actions/checkout keeps its token for git in the work tree, unless `persist-credentials: false` is
set. Only then does git use the input. It is in the environment of a step's processes, and never in
a file or a command line.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from vmrag_link import endpoint, env
from vmrag_link.git import credentials
from vmrag_link.paths import Places


def list_secret_forms(secret: str) -> tuple[str, ...]:
    """Return the texts that the log must mask: the token, and its form in a header."""
    secret = secret.strip()
    return (secret, _encode_basic(secret)) if secret else ()


def build_git_environment(places: Places, secret: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables with which git authenticates at GITHUB_SERVER_URL.

    The result is empty if git already has credentials, without a token, and for a server to which
    the token would be sent unencrypted.
    """
    secret = secret.strip()
    server = env.read_github_server(environ)
    is_usable = _is_origin(server) and endpoint.is_private(server)
    if not secret or not is_usable or credentials.has_credentials(places, server):
        return {}
    header = f"AUTHORIZATION: basic {_encode_basic(secret)}"  # in the form of actions/checkout
    return env.git_settings(above=[(f"http.{server}/.extraheader", header)], environ=environ)


def allow_directory(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables with which git accepts the repository around a folder, although another
    user owns it.

    In a container, the workspace belongs to the runner. Other repositories stay refused.
    """
    folder = folder.resolve()
    top = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    return env.git_settings(above=[("safe.directory", str(top))], environ=environ)


def _is_origin(server: str) -> bool:
    """Return whether an address is `SCHEME://HOST[:PORT]` for HTTP."""
    try:
        parts = urlsplit(server)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and server == f"{parts.scheme}://{parts.netloc}" and "@" not in server


def _encode_basic(secret: str) -> str:
    return base64.b64encode(f"x-access-token:{secret}".encode()).decode()
