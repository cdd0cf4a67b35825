"""The input `token`: with it git gets in at the job's own server, where it does not by itself.

actions/checkout keeps its token for git in the work tree, unless `persist-credentials: false` says
otherwise. Only then the input is used. It reaches git in the environment of a step's processes:
no file and no command line holds it.
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


def forms(secret: str) -> tuple[str, ...]:
    """Everything that the log must mask: the token, and what stands for it in a header."""
    secret = secret.strip()
    return (secret, _basic(secret)) if secret else ()


def environment(places: Places, secret: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables with which git gets in at GITHUB_SERVER_URL.

    Empty where it does already, where there is no token, and for a server to which the token would
    travel in the clear.
    """
    secret, server = secret.strip(), env.github_server(environ)
    if not secret or not _is_origin(server) or not endpoint.is_private(server) or credentials.known(places, server):
        return {}
    header = f"AUTHORIZATION: basic {_basic(secret)}"  # as actions/checkout says it
    return env.git_settings(above=[(f"http.{server}/.extraheader", header)], environ=environ)


def safe_directory(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables with which git works in the repository around a folder, and in no other one,
    although another user owns it: a container's workspace is the runner's.
    """
    folder = folder.resolve()
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
    return env.git_settings(above=[("safe.directory", str(top))], environ=environ)


def _is_origin(server: str) -> bool:
    try:
        parts = urlsplit(server)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and server == f"{parts.scheme}://{parts.netloc}" and "@" not in server


def _basic(secret: str) -> str:
    return base64.b64encode(f"x-access-token:{secret}".encode()).decode()
