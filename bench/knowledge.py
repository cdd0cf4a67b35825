"""Repositories to measure on: N documents of one chunk each, and a branch on which 100 of them
differ.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import subprocess
import sys
from pathlib import Path

from vmrag_link import pin as pins
from vmrag_link.embedding import registry
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.models import ISSUES, Collection, Document, content_hash, encode_canonical_json

DIFFERENT = 100
WORDS = 55
VMRAG = [sys.executable, "-m", "vmrag_link.cli.main"]


def environment(home: Path) -> dict[str, str]:
    """No git configuration, only the hooks under test, modules compiled as installed.

    No background process builds a store of Chroma's meanwhile.
    """
    home.mkdir(parents=True, exist_ok=True)
    identity = {"NAME": "Bench", "EMAIL": "bench@example.com"}
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "VMRAG", "PYTHON"))},
        "HOME": str(home),
        "VMRAG_INDEX_CHROMA": "off",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in identity.items()},
    }


def git(repo: Path, *arguments: str, env: dict[str, str]) -> str:
    process = subprocess.run(["git", *arguments], cwd=repo, env=env, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {process.stderr}")
    return process.stdout


def make(
    folder: Path, documents: int, env: dict[str, str], *, engine_name: str = "doltlite", logs: bool = False
) -> Path:
    """A repository with the branches `main` and `feature`, indexed and bound at `main`; made once
    per folder and engine. With `logs` the documents are issue logs.
    """
    kind = "-logs" if logs else ""
    repo = folder / (
        f"repo{kind}-{documents}" if engine_name == "doltlite" else f"repo{kind}-{engine_name}-{documents}"
    )
    if (repo / "done").exists():
        return repo
    repo.mkdir(parents=True)
    git(repo, "init", "-q", "-b", "main", env=env)
    subprocess.run(
        [*VMRAG, "init", "--knowledge-base", "--no-sources", "-q", "--no-hooks", "--engine", engine_name],
        cwd=repo,
        env=env,
        check=True,
    )
    engine = opening.open_engine(repo / ".git/vmrag/kb")
    rng = random.Random(7)
    vocabulary = [f"word{number}" for number in range(5000)]
    text = lambda: " ".join(rng.choices(vocabulary, k=WORDS))  # noqa: E731  the words of the bare switch
    model = registry.load_model("default")
    document = issue_log if logs else plain_document
    collection = Collection(
        document("", "").collection,
        kind=ISSUES if logs else "chroma",
        embedding_function=model.name,
        embedding_model=model.fingerprint,
        embedding_dimensions=model.dimensions,
    )
    rows = [document(f"d{number:07d}", text()) for number in range(documents)]
    step = max(1, documents // DIFFERENT)
    edits = [document(rows[number * step].doc_id, text()) for number in range(DIFFERENT)]
    revision = head(engine, ROOT_BRANCH)
    for branch, write in (
        ("main", Write(put_collections=[collection], put_documents=rows)),
        ("feature", Write(put_documents=edits)),
    ):
        if engine.find_branch(branch) is None:  # main exists from the beginning
            engine.create_branch(branch, revision)
        engine.write(branch, write, expected=revision)
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        revision = engine.commit(
            branch, message=branch, author="Bench <bench@example.com>", date=now, expected=revision
        )
        if branch == "feature":
            git(repo, "switch", "-q", "-c", "feature", env=env)
        pin = pins.update_pin(None, remote="git:", branch=branch, commit=revision, committed_at=now)
        (repo / ".dolt-version").write_bytes(pins.format_pin(pin))
        git(repo, "config", f"branch.{branch}.vmragBranch", branch, env=env)
        git(repo, "add", "-A", env=env)
        git(repo, "commit", "-q", "-m", branch, env=env)
    engine.close()
    for branch in ("feature", "main"):  # so that every vector is in the cache
        git(repo, "switch", "-q", branch, env=env)
        subprocess.run([*VMRAG, "sync", "-q"], cwd=repo, env=env, check=True)
    (repo / "done").touch()
    (repo / ".git/info/exclude").write_text("done\n")
    return repo


def pinned(repo: Path, ref: str, env: dict[str, str]) -> str:
    return pins.parse_pin(git(repo, "show", f"{ref}:.dolt-version", env=env).encode()).dolt_commit


def head(engine: Engine, branch: str) -> str:
    state = engine.find_branch(branch)
    assert state is not None
    return state.head


def plain_document(doc_id: str, text: str) -> Document:
    return Document("documents", doc_id, doc_id, text, content_hash(text))


def issue_log(doc_id: str, text: str) -> Document:
    stated = {"project_id": "bench", "issue_number": int(doc_id[1:] or 0), "log_type": "resolution"}
    metadata = encode_canonical_json(stated)
    return Document("issues_bench", doc_id, doc_id, text, content_hash(text), metadata, table="issue_logs")
