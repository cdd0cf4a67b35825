"""Embedding models by the names that `.vmrag.yaml` gives them."""

from __future__ import annotations

from pathlib import Path

from vmrag_link.embedding.base import Model
from vmrag_link.embedding.hashing import HashModel
from vmrag_link.embedding.minilm import MiniLmModel
from vmrag_link.embedding.static import StaticModel
from vmrag_link.errors import UsageInvalid
from vmrag_link.nearest import nearest

NAMES = ("default", "hash", "minilm")


def load(name: str, *, model_path: Path | None = None) -> Model:
    """The model of that name; nothing heavy happens before its first `embed`. Raises `UsageInvalid` for other names.

    `model_path`: the folder of minilm's `model.onnx` and `tokenizer.json`, where they are not installed as packages.
    """
    match name:
        case "default":
            return StaticModel()
        case "hash":
            return HashModel()
        case "minilm":
            return MiniLmModel(model_path)
    near = nearest(name, NAMES, cutoff=0.5)
    raise UsageInvalid(
        f"There is no embedding model named {name!r}." + (f" Did you mean {near!r}?" if near else ""),
        hint=f"Set embedding.model in .vmrag.yaml to one of: {', '.join(NAMES)}.",
        name=name,
        valid=list(NAMES),
    )
