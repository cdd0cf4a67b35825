"""Write what Dolt's own program prints in a knowledge base: `python -m tests.dolt.document`.

The commands are in stories.md. The first revision of a repository contains the time, so all
revisions change. The page has steady ones.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.support import pages
from tests.support.engines import AUTHOR, DATE, document, store
from vmrag_link.engines.base import Write
from vmrag_link.engines.dolt.engine import DoltEngine
from vmrag_link.models import Link

STORIES = Path(__file__).with_name("stories.md")
GRACE = "Grace <grace@example.org>"
COLOR = "\x1b\\[[0-9;]*m"

COMMANDS = (
    "dolt branch",
    "dolt log --oneline main",
    "dolt log -n 2 main",
    "dolt diff --stat main~1 main",
    "dolt blame main documents",
    "dolt sql -q \"SELECT doc_id, title FROM documents AS OF 'main'\"",
    "dolt sql -q \"SELECT diff_type, to_doc_id, from_title, to_title FROM dolt_diff('main~1', 'main', 'documents')\"",
    "dolt sql -q \"SELECT git_branch, dolt_commit, source FROM git_links AS OF 'vmrag_links'\"",
)


def write() -> dict[Path, str]:
    """Return the page with what the program prints today."""
    return {STORIES: pages.fill_page(STORIES, {"dolt": pages.console(said())})}


def said() -> str:
    """The commands and what they print, in a knowledge base with a merge and a link."""
    with tempfile.TemporaryDirectory() as folder:
        kb = Path(folder, "kb")
        _fill(kb)
        printed = "\n".join(f"$ {command}\n{_printed(command, kb)}" for command in COMMANDS)
    return pages.normalize_revisions(printed, r"\b[0-9a-v]{32}\b", _revision)


def _revision(number: bytes) -> str:
    return "".join("0123456789abcdefghijklmnopqrstuv"[byte % 32] for byte in hashlib.sha256(number).digest())


def _fill(kb: Path) -> None:
    engine = DoltEngine.create(kb, author=AUTHOR, date=DATE)
    first = store(engine, "main", _page("vpn.md", "The red key"), _page("faq.md", "Ask Ada"))
    engine.create_branch("feature", first)
    engine.write("feature", Write(put_documents=[_page("vpn.md", "The blue key")]), expected=first)
    theirs = engine.commit(
        "feature", message="The key is blue", author=GRACE, date="2026-01-03T08:00:00Z", expected=first
    )
    ours = store(engine, "main", _page("faq.md", "Ask Grace"))
    merged = engine.commit_onto(
        ours,
        [Write(put_documents=[_page("vpn.md", "The blue key")])],
        joining=theirs,
        message="Merge feature",
        author=AUTHOR,
        date="2026-01-04T09:00:00Z",
    )
    engine.move_branch("main", merged, expected=ours)
    link = Link("1" * 40, merged, "main", git_branch="main", linked_at=DATE, source="pin")
    engine.write_links([link], message="Link", author=AUTHOR, date=DATE)
    engine.close()


def _page(doc_id: str, title: str):
    return document(doc_id, f"# {title}\n", collection="handbook", title=title)


def _printed(command: str, kb: Path) -> str:
    env = os.environ | {"DOLT_ROOT_PATH": str(kb.parent)}
    result = subprocess.run(command, shell=True, cwd=kb, env=env, capture_output=True, text=True, check=True)
    lines = re.sub(COLOR, "", result.stdout).strip("\n").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


if __name__ == "__main__":
    for path, text in write().items():
        path.write_text(text)
