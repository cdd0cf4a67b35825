"""`python -m bench.default_model [--check]`: make the files of the default model from WordLlama's.

Needs their package, which nothing else does: `pip install --no-deps wordllama==0.4.0.post1`. With
`--check` nothing is written; exit code 1 if the files are not what this makes. New files have new
hashes, which `embedding/static.py` states, and with which every collection is embedded again.

A row of the table is 256 whole numbers of a byte and a weight from 1 to 255: lengths of rows differ
a hundredfold, and they are what makes a word count more than another. One scale for all rows would
leave short ones two or three bits (README, "The default model as whole numbers").
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from vmrag_link.embedding import static
from vmrag_link.embedding.byte_pairs import SPACE, encode_merges

WEIGHTS = "weights/l2_supercat_256.safetensors"
WEIGHTS_SHA256 = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
TOKENIZER_SHA256 = "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
TENSOR = "embedding.weight"
LARGEST, LARGEST_WEIGHT = 127, 255
ROUNDED_TO_LARGEST = LARGEST + 0.49
DESCRIPTION = Path(__file__).parents[1] / "tests" / "data" / "default_model_tokenizer.json"
"""The tokenizer's description, which only tests and benchmarks read."""
UNUSED = ("decoder", "post_processor")
"""Parts of the tokenizer: for texts of tokens, and for special tokens."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.default_model", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the files that are there; write nothing")
    given = parser.parse_args()
    folder = wordllama()
    description = tokenizer(verified(folder / TOKENIZER, TOKENIZER_SHA256))
    made = {
        static.FOLDER / static.TABLE: table(verified(folder / WEIGHTS, WEIGHTS_SHA256)),
        DESCRIPTION: description,
        static.FOLDER / static.GROUPS: groups(description),
        static.FOLDER / static.CHARACTERS: characters(description),
        static.FOLDER / static.MERGES: merges(description),
    }
    stated = {
        static.TABLE: static.TABLE_SHA256,
        DESCRIPTION.name: static.TOKENIZER_SHA256,
        static.GROUPS: static.GROUPS_SHA256,
        static.CHARACTERS: static.CHARACTERS_SHA256,
        static.MERGES: static.MERGES_SHA256,
    }
    wrong = []
    for path, content in made.items():
        name, digest = path.name, hashlib.sha256(content).hexdigest()
        if not given.check:
            path.write_bytes(content)
        equal = path.read_bytes() == content
        print(f"{path}: {len(content):,} bytes, SHA-256 {digest}")
        wrong += [f"{path} is another file."] * (not equal)
        wrong += [f"embedding/static.py states {stated[name]}."] * (digest != stated[name])
    if wrong:
        raise SystemExit("\n".join(wrong))


def wordllama() -> Path:
    """The folder of the installed package, which is not imported."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install --no-deps wordllama==0.4.0.post1")
    return Path(spec.submodule_search_locations[0])


def verified(path: Path, sha256: str) -> bytes:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SystemExit(f"{path} is not the file of wordllama 0.4.0.post1.")
    return content


def table(safetensors: bytes) -> bytes:
    """The weights of all tokens, then their rows. Single operations of float64, so that every
    machine makes the same bytes.
    """
    vectors = read(safetensors).astype("f8")
    longest = np.abs(vectors).max(axis=1)
    unit = longest.max() / (LARGEST * LARGEST_WEIGHT)
    weights = np.clip(np.ceil(longest / ROUNDED_TO_LARGEST / unit), 1, LARGEST_WEIGHT)
    rows = np.clip(np.rint(vectors / (weights * unit)[:, None]), -LARGEST, LARGEST)
    return weights.astype("u1").tobytes() + rows.astype("i1").tobytes()


def read(safetensors: bytes) -> np.ndarray:
    """The format: length of the header (8 bytes, little-endian), header (JSON), data; offsets count
    from the data's start.
    """
    length = int.from_bytes(safetensors[:8], "little")
    tensor = json.loads(safetensors[8 : 8 + length])[TENSOR]
    start, end = (8 + length + offset for offset in tensor["data_offsets"])
    return np.frombuffer(safetensors[start:end], "<f2").reshape(tensor["shape"])


def tokenizer(content: bytes) -> bytes:
    """Return the part of the tokenizer that encodes texts, without the part that decodes."""
    made = json.loads(content) | dict.fromkeys(UNUSED)
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def merges(tokenizer_content: bytes) -> bytes:
    """The content of `static.MERGES`."""
    model = json.loads(tokenizer_content)["model"]
    pairs, tokens = (merge.split(" ") for merge in model["merges"]), model["vocab"]
    return encode_merges((tokens[head], tokens[tail], tokens[head + tail]) for head, tail in pairs)


def characters(tokenizer_content: bytes) -> bytes:
    """The content of `static.CHARACTERS`."""
    tokens = json.loads(tokenizer_content)["model"]["vocab"].items()
    single = {token: number for token, number in tokens if len(token) == 1}
    return json.dumps(single, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def groups(tokenizer_content: bytes) -> bytes:
    """A string for each group, its characters in order."""
    character_groups = neighbours(json.loads(tokenizer_content)["model"]["merges"])
    texts = ["".join(sorted(characters)) for characters in character_groups]
    return json.dumps(texts, ensure_ascii=False).encode() + b"\n"


def neighbours(merges: Iterable[str]) -> list[set[str]]:
    """The groups of `static.GROUPS`, the largest first."""
    joints = set()
    for merge in merges:
        front, _, back = merge.partition(" ")
        joints.add((front[-1], back[0]))
    groups: dict[str, set[str]] = {}
    for joint, right in joints:
        if joint == SPACE:
            groups.setdefault(right, {right})
        elif (one := groups.setdefault(joint, {joint})) is not (other := groups.setdefault(right, {right})):
            one |= other
            groups |= dict.fromkeys(other, one)
    groups.pop(SPACE, None)
    unique = {id(group): group for group in groups.values()}
    return sorted(unique.values(), key=lambda characters: (-len(characters), min(characters)))


if __name__ == "__main__":
    main()
