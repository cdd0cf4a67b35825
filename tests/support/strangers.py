"""Hostile `.dolt-version` and `.vmrag.yaml` files: `tests/unit/test_strangers.py` reads all of
them, and `tests/integration/test_hostile_pins.py` checks out some of each kind (with `--long`,
all).
"""

from __future__ import annotations

import json
from typing import Any

SETTINGS = "embedding:\n  model: hash\n"
UNKNOWN = "0123456789abcdef0123456789abcdef01234567"
SECRET = "opensesame"

# {a} {b} {c} are listening ports, {out} is a watched folder, {origin} the code's
# own remote by its path.

UNTRUSTED = {
    "doltlite over HTTP": "http://127.0.0.1:{a}/kb",
    "by name": "http://localhost:{b}/kb",
    "over IPv6": "http://[::1]:{c}/kb",
    "over TLS": "https://127.0.0.1:{a}/kb",
    "with a query": "http://127.0.0.1:{b}/kb?x=git:",
    "with a fragment": "http://127.0.0.1:{b}/kb#git:",
    "git over HTTP": "git+http://127.0.0.1:{a}/kb.git",
    "git over HTTPS": "git+https://127.0.0.1:{b}/kb.git",
    "git over IPv6": "git+http://[::1]:{c}/kb.git",
    "another host, through the proxy": "git+http://mallory.example/kb.git",
    "like a famous host": "git+https://GITHUB.com/org/KB.git",
    "git over ssh": "git+ssh://git@127.0.0.1:{c}/kb.git",
    "a home over ssh": "git+ssh://mallory.example/~mallory/kb.git",
    "an option as a path": "git+ssh://mallory.example/--upload-pack=touch",
    "a command as a path": "git+ssh://mallory.example/$(touch {out}/pwned);`touch {out}/pwned`",
    "ssh": "ssh://git@127.0.0.1:{c}/kb",
    "a database": "file://{out}/kb.doltlite",
    "a database, by a detour": "file://{out}/x/../kb.doltlite",
    "a database, by an encoded detour": "file://{out}/x/%2e%2e/%6bb.doltlite",
    "a database through a link": "file://{out}/link/kb.doltlite",
    "a new database": "file://{out}/new.doltlite",
    "a repository": "git+file://{out}/kb.git",
    "a repository through a link": "git+file://{out}/link/kb.git",
    "the code's remote by another name": "git+file://{origin}",
    "a socket": "file://{out}/socket",
    "git on a socket": "git+file://{out}/socket",
    "endless zeros": "file:///dev/zero",
    "the environment": "file:///proc/self/environ",
    "DoltHub": "mallory/kb",
    "a bucket": "s3://mallory/kb",
    "a table": "aws://[table:bucket]/kb",
}
"""Remotes that could be meant, if one only knew the people."""

SEEN = {
    "doltlite over HTTP": "port {a}",
    "by name": "port {b}",
    "over TLS": "port {a}",
    "git over HTTP": "port {a}",
    "git over HTTPS": "port {b}",
    "git over IPv6": "port {c}",
    "another host, through the proxy": "port {a}",
    "like a famous host": "port {a}",
    "git over ssh": "-p {c} git@127.0.0.1 git-upload-pack '/kb.git'",
    "a home over ssh": "mallory.example git-upload-pack '~mallory/kb.git'",
    "a database": "file {out}/kb.doltlite",
    "a database, by a detour": "file {out}/kb.doltlite",
    "a database, by an encoded detour": "file {out}/kb.doltlite",
    "a database through a link": "file {out}/kb.doltlite",
    "a repository": "file {out}/kb.git/HEAD",
    "a repository through a link": "file {out}/kb.git/HEAD",
}
"""End of the recorded contact after an agreement to the remote."""

IMPOSSIBLE = {
    "a transport helper": "ext::sh -c 'touch {out}/pwned'",
    "a transport helper with escapes": "ext::touch% {out}/pwned",
    "a helper of our own": "evil::http://127.0.0.1:{a}/",
    "a helper behind git+": "git+ext::sh -c touch% {out}/pwned",
    "a file descriptor": "fd::7",
    "a helper as a scheme": "evil://127.0.0.1:{a}/kb",
    "the git protocol": "git+git://127.0.0.1:{a}/kb",
    "FTP": "git+ftp://127.0.0.1:{a}/kb",
    "an option of git": "--upload-pack=touch {out}/pwned",
    "an option of ssh": "-oProxyCommand=touch/pwned",
    "a host that is an option": "git+ssh://-oProxyCommand=touch/pwned",
    "a host that is an option, encoded": "git+ssh://%2doProxyCommand=touch/pwned",
    "a host that is an option, in brackets": "git+ssh://[-oProxyCommand=touch]/pwned",
    "a user before an option": "git+ssh://git@-oProxyCommand=touch/pwned",
    "a user that is a command": "git+ssh://`touch`@mallory.example/kb",
    "a host that is a command": "git+ssh://$(touch)/kb",
    "a host with a semicolon": "git+ssh://mallory.example;touch/kb",
    "a password": "git+https://me:" + SECRET + "@127.0.0.1:{a}/kb",
    "a token": "git+https://" + SECRET + "@127.0.0.1:{a}/kb",
    "a famous host as a user": "git+https://github.com@127.0.0.1:{a}/kb",
    "a famous host, encoded": "git+https://github.com%2f@127.0.0.1:{a}/kb",
    "a famous host in other letters": "git+https://g\u0456thub.com/org/kb",
    "a line for the credential helper": "git+https://127.0.0.1:{a}/%0ahost=github.com",
    "a second request": "http://127.0.0.1:{a}/ HTTP/1.1\r\nHost: x",
    "an escape sequence": "https://127.0.0.1:{a}/\x1b]0;owned\x07",
    "text from right to left": "https://127.0.0.1:{a}/\u202etig",
    "another case": "HTTP://127.0.0.1:{a}/kb",
    "a folder in another case": "File://{out}/kb.doltlite",
    "a folder of a host": "file://localhost{out}/kb.doltlite",
    "a share": "git+file://127.0.0.1{out}/kb.git",
    "one slash": "file:{out}/kb.doltlite",
    "a path": "{out}/kb.git",
    "a path upwards": "../outside/kb.git",
    "a home": "~/kb.git",
    "what scp takes": "git@127.0.0.1:org/kb",
    "backslashes": "http:\\\\127.0.0.1:{a}\\kb",
    "git: and more": "git:--upload-pack=touch",
    "git: and a line": "git:\n",
    "a remote's name": "origin",
    "nothing": "",
    "too much": "https://127.0.0.1:{a}/" + "x" * 1500,
}
"""Remotes that no pin may name."""


def members(**members: Any) -> bytes:
    pin = {"dolt_remote": "git:", "dolt_branch": "main", "dolt_commit": UNKNOWN, "linked_at": "2026-01-31T12:00:00Z"}
    return json.dumps(pin | members).encode()


BROKEN: dict[str, tuple[str, bytes]] = {
    "the remote twice": (
        "100644",
        members().replace(b'{"dolt', b'{"dolt_remote": "http://127.0.0.1:{a}/kb", "dolt', 1),
    ),
    "a list of remotes": ("100644", members(dolt_remote=["git:", "http://127.0.0.1:{a}/kb"])),
    "a number as the remote": ("100644", members(dolt_remote=7)),
    "a branch that is an option": ("100644", members(dolt_branch="--all")),
    "a branch upwards": ("100644", members(dolt_branch="../../outside")),
    "a branch of the tool": ("100644", members(dolt_branch="vmrag_keep")),
    "a branch that moves the cursor": ("100644", members(dolt_branch="a\x1b[2J")),
    "a revision that is a name": ("100644", members(dolt_commit="main")),
    "a revision that is an option": ("100644", members(dolt_commit="--" + "a" * 38)),
    "a revision upwards": ("100644", members(dolt_commit="../" * 13 + "a")),
    "ten kilobytes": ("100644", members(note="x" * 10_000)),
    "an executable": ("100755", b"#!/bin/sh\ntouch {out}/pwned\n"),
}
"""Files by their mode in git."""

NO_FILE: dict[str, tuple[str, bytes]] = {
    "a link to a file": ("120000", b"{out}/pin.json"),
    "a link to a device": ("120000", b"/dev/zero"),
    "a submodule": ("160000", b""),
}

SETTINGS_REFUSED = {
    "an object": '!!python/object/apply:os.system ["touch {out}/pwned"]',
    "an object as a value": 'remote: !!python/object/apply:os.system ["touch {out}/pwned"]',
    "a helper as the remote": "remote: \"ext::sh -c 'touch {out}/pwned'\"",
    "an option as the remote": 'remote: "--upload-pack=touch {out}/pwned"',
    "a remote with a password": f'remote: "https://me:{SECRET}@127.0.0.1:{{a}}/kb"',
    "a list of remotes": 'remote: ["git:", "http://127.0.0.1:{a}/kb"]',
    "a remote in a section": 'remote:\n  url: "http://127.0.0.1:{a}/kb"',
    "the remote twice": 'remote: "git:"\nremote: "http://127.0.0.1:{a}/kb"',
    "a second document": 'remote: "git:"\n---\nremote: "http://127.0.0.1:{a}/kb"',
    "a server of the index": "chroma:\n  mode: http\n  host: 127.0.0.1\n  port: {a}",
    "an endpoint of a model": 'embedding:\n  model: openai\n  endpoint: "http://127.0.0.1:{a}/v1"',
    "trust": 'trustedRemote: "http://127.0.0.1:{a}/kb"',
    "a folder that is allowed": 'fileRoot: "/"',
    "a root, as in git": 'vmrag.fileRoot: "/"',
    "an include": "include: {out}/settings.yaml",
    "an include by a tag": "embedding: !include {out}/settings.yaml",
    "a merge": 'a: &a {{remote: "http://127.0.0.1:{a}/kb"}}\n<<: *a',
    "laughs": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
    "a control character": 'remote: "git:\x1b[2J"',
    "a line break as a value": 'embedding:\n  model_path: "{out}\\nx"',
    "another encoding": "\ufeff".encode("utf-16").decode("latin-1"),
    "a megabyte": "# " + "x" * 1_000_000,
    "an hour and a second": "lock_timeout_s: 3601",
}

SETTINGS_IGNORED = {
    "a model": "embedding:\n  model: hash\n  model_path: {out}",
    "a model by its whole name": "embedding.model_path: {out}/x",
    "a model on a share": "embedding:\n  model: hash\n  model_path: //127.0.0.1/share",
    "a model upwards": "embedding:\n  model: hash\n  model_path: ../outside",
    "a model that is an option": 'embedding:\n  model: hash\n  model_path: "--unset-all"',
    "a program of the engine": "dolt:\n  binary: {out}/pwned",
    "a server of the engine": "dolt:\n  server: 127.0.0.1:{a}",
    "a model that is a command": "embedding:\n  model: hash\n  model_path: '$(touch {out}/pwned)'",
}

SETTINGS_OF_NO_FILE: dict[str, tuple[str, bytes]] = {
    "a link to settings": ("120000", b"{out}/settings.yaml"),
    "a link to a device": ("120000", b"/dev/zero"),
    "a submodule": ("160000", b""),
}
