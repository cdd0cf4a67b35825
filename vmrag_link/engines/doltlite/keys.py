"""The keys by which a doltlite server knows its clients, and the key that proves the server.

A client signs every request to an https remote with its Ed25519 key, a JWK file named by its id in
`env.client_keys`. The server has the public halves, in files of the same names. Nothing here prints
or returns a secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import ssl
from pathlib import Path
from typing import Any

from vmrag_link import env
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.errors import FileFailed, UsageInvalid, quoted, set_aside
from vmrag_link.paths import read_regular, write_atomically

SUFFIX = ".jwk"
READ_LIMIT = 4096
PUBLIC = ("kty", "crv", "x")
"""What of a key everybody may know; `d` is the secret."""


def export(folder: Path) -> Path:
    """Write the public half of this user's key into a folder, for a server's administrator.

    Makes the key if there is none. Raises `UsageInvalid` if there are several keys and none is
    named, and for a key that others can read.
    """
    private = _own_key()
    check_private(private)
    key = _read(private)
    public = {name: key[name] for name in PUBLIC if name in key}
    if _key_id(public) != private.stem:
        raise UsageInvalid(
            f"{private} is not a key that belongs to its name.",
            hint=f"Let a new one be made: {set_aside(private)}",
        )
    path = folder / private.name
    write_atomically(path, json.dumps(public, separators=(",", ":")).encode() + b"\n")
    return path


def _own_key() -> Path:
    """The key with which the engine signs: the one that the environment names, or the only one."""
    folder, chosen = env.client_keys()
    if chosen:
        return folder / f"{chosen}{SUFFIX}"
    if not (found := sorted(folder.glob(f"*{SUFFIX}"))):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise FileFailed(
                f"There is no place for a key: {folder}: {error.strerror}.",
                hint=f"Choose another folder: export {env.CLIENT_KEYS}=/path/to/keys",
                path=str(folder),
            ) from error
        with Connection(Path(":memory:"), access="create") as connection:
            connection.execute("SELECT dolt_creds_new()")
        found = sorted(folder.glob(f"*{SUFFIX}"))
    if len(found) != 1:
        raise UsageInvalid(
            f"{folder} holds {len(found)} keys, and the engine signs with none of them unless it is told which.",
            hint=f"Choose one: export {env.CLIENT_KEY}={found[0].stem}" if found else "",
        )
    return found[0]


def authorized_ids(folder: Path) -> tuple[str, ...]:
    """The ids of the keys in a server's folder.

    Raises `UsageInvalid` if a file is no public key, or others could add one.
    """
    if not folder.is_dir():
        raise UsageInvalid(
            f"There is no folder {folder} with the clients' public keys.",
            hint=f"Make it: mkdir -m 700 {quoted(folder)}",
        )
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not files:
        raise UsageInvalid(
            f"{folder} holds no public key, so that nobody could sign in.",
            hint=f"Each client makes a file for it, yourself with: vmrag serve --export-key {quoted(folder)}",
        )
    for path in (folder, *files):
        if path.stat().st_mode & 0o022:
            raise UsageInvalid(
                f"Others may write to {path}: they could let themselves in.", hint=f"chmod go-w {quoted(path)}"
            )
    for path in files:
        key = _read(path)
        if "d" in key:
            raise UsageInvalid(
                f"{path} holds a private key. A server must never have one.",
                hint="Whose it is makes a new one, and sends what this writes: vmrag serve --export-key FOLDER",
            )
        if _key_id(key) != path.stem:
            raise UsageInvalid(
                f"{path} is not a public key that belongs to its name.",
                hint="Ask its owner for the file that this writes: vmrag serve --export-key FOLDER",
            )
    return tuple(path.stem for path in files)


def check_private(path: Path) -> None:
    """As ssh does it: a secret that others can read is none. Raises `UsageInvalid`."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageInvalid(
            f"{path}: {error.strerror}.", hint=f"See what is there: ls -l {quoted(path.parent)}"
        ) from error
    if mode & 0o077:
        raise UsageInvalid(
            f"Others may read the private key {path} (mode {mode & 0o777:04o}).", hint=f"chmod 600 {quoted(path)}"
        )


def check_certificate(certificate: Path, key: Path) -> None:
    """The library only says that it failed: ask Python's TLS first. Raises `UsageInvalid`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a passphrase OpenSSL would ask the terminal for one, which the engine cannot.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as error:
        raise UsageInvalid(
            f"{certificate} and {key} are not a certificate and its private key without passphrase ({error.reason}).",
            hint=f"See whose key it is: openssl x509 -noout -pubkey -in {quoted(certificate)}",
        ) from error
    except OSError as error:
        raise UsageInvalid(
            f"{certificate}: {error.strerror}.", hint=f"See what is there: ls -l {quoted(certificate.parent)}"
        ) from error


def _read(path: Path) -> dict[str, Any]:
    """A JWK; empty for a file that is none."""
    try:
        key = json.loads(read_regular(path, READ_LIMIT))
    except (ValueError, OSError) as error:
        raise UsageInvalid(f"{path} is not a key: {error}.", hint=set_aside(path)) from error
    return key if isinstance(key, dict) else {}


def _key_id(key: dict[str, Any]) -> str | None:
    """SHA-512/224 of the public key, in base32hex without padding; None if it is no Ed25519 key."""
    if key.get("kty") != "OKP" or key.get("crv") != "Ed25519":
        return None
    try:
        public = base64.urlsafe_b64decode(str(key.get("x")) + "==")
    except binascii.Error:
        return None
    return base64.b32hexencode(hashlib.new("sha512_224", public).digest()).decode().rstrip("=").lower()
