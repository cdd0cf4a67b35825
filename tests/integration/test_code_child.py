"""The process that cuts untrusted programs, and how it ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.test_code_symbols import SAMPLES
from vmrag_link.code.cutter import CodeCutter
from vmrag_link.code.cutting import MOST_BYTES, cut_code
from vmrag_link.code.languages import GRAMMARS, CodePiece, CodeTask, CodeUnparsed
from vmrag_link.conversion.limits import MIB, ConversionLimits

ROOT = Path(__file__).parents[2]
SOURCES = [path.read_text() for path in sorted((ROOT / "vmrag_link").glob("*.py"))]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for the temporary folders of child processes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def cutter() -> Iterator[CodeCutter]:
    with CodeCutter() as code_cutter:
        yield code_cutter


def process_of(cutter: CodeCutter) -> int:
    process = cutter._children[0]._process
    assert process
    return process._process.pid


def stop(cutter: CodeCutter) -> int:
    """Its child does nothing from now on, as one that computes for ever."""
    cutter.cut_text("f(12)\n", "python", 100)
    os.kill(process_of(cutter), signal.SIGSTOP)
    return process_of(cutter)


def later(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


# -- the same pieces as anywhere


def test_confined_child_loads_each_grammar_and_keeps_the_order(
    cutter: CodeCutter,
) -> None:
    tasks = [CodeTask(text, language, 300) for language, (text, _) in SAMPLES.items()]
    tasks += [CodeTask(text, "python") for text in SOURCES]
    tasks.insert(3, CodeTask("no grammar\n", "lua"))
    tasks.insert(4, CodeTask("", "python"))
    random.Random(3).shuffle(tasks)
    expected = [cut_code(task.text, task.language, task.size) for task in tasks]
    assert list(cutter.cut_all(tasks)) == expected


def test_several_processes_share_the_texts_and_keep_their_order() -> None:
    texts = [*SOURCES, *SOURCES[:9]]
    tasks = [CodeTask(text, "python", blob=str(hash(text))) for text in texts]
    with CodeCutter(processes=3) as cutter:
        assert list(cutter.cut_all(tasks)) == [cut_code(text, "python", 1500) for text in texts]
        assert all(child._process for child in cutter._children)


def test_death_of_one_of_several_processes_costs_at_most_one_text() -> None:
    with CodeCutter(processes=3) as cutter:
        answers = cutter.cut_all(CodeTask(text, "python") for text in SOURCES)
        first = next(answers)
        os.kill(process_of(cutter), signal.SIGKILL)
        pieces = [first, *answers]
    assert sum(isinstance(answer, CodeUnparsed) for answer in pieces) <= 1
    for text, answer in zip(SOURCES, pieces, strict=True):
        assert isinstance(answer, CodeUnparsed) or answer == cut_code(text, "python", 1500)


def test_each_process_cuts_independently_of_earlier_texts() -> None:
    task = CodeTask("".join(SOURCES)[:60_000], "python")
    hard = CodeTask("a?b:" * 5000, "ruby")
    result = []
    for before in ([], [hard], [CodeTask("(" * 100_000, "python"), hard]):
        with CodeCutter() as cutter:
            result.append([*cutter.cut_all([*before, task, hard])][-2:])
    assert result[0] == result[1] == result[2]


def test_tasks_are_read_as_they_are_needed(cutter: CodeCutter) -> None:
    read = 0

    def tasks() -> Iterator[CodeTask]:
        nonlocal read
        for read in range(1, 1000):  # noqa: B007
            yield CodeTask("f(12)\n", "python")

    assert next(cutter.cut_all(tasks()))
    assert read < 300


def test_cutter_returns_right_pieces_after_an_abandoned_task(cutter: CodeCutter) -> None:
    tasks = [CodeTask(f"def f{number}():\n    pass\n", "python") for number in range(40)]
    for _ in cutter.cut_all(tasks):
        break
    assert [piece.symbol for piece in cutter.cut_text("def other():\n    pass\n", "python", 100)] == ["other"]


# -- processes


def test_process_is_not_started_for_texts_without_parsing(cutter: CodeCutter) -> None:
    assert cutter.cut_text("local a = 1\n", "lua", 100) == [CodePiece(0, 12)]
    assert cutter.cut_text("", "python", 100) == [CodePiece(0, 0)]
    assert len(cutter.cut_text("f(12)\n" * (MOST_BYTES // 5), "python", 1500)) > 100
    assert cutter._children[0]._process is None


def test_single_process_serves_all_and_leaves_nothing(temporary: Path) -> None:
    with CodeCutter() as cutter:
        cutter.cut_text("f(12)\n", "python", 100)
        first = process_of(cutter)
        cutter.cut_text("package a\n", "go", 100)
        assert process_of(cutter) == first
        assert [*temporary.iterdir()] != []
    assert [*temporary.iterdir()] == []
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_end_of_the_parent_is_the_end_of_the_child(tmp_path: Path) -> None:
    code = (
        "import os\nfrom vmrag_link.code.cutter import CodeCutter\n"
        "c = CodeCutter(); c.cut_text('a = 1\\n', 'python', 9); print(c._children[0]._process._process.pid, flush=True); os._exit(0)"
    )
    argv = [sys.executable, "-c", code]
    said = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    end = time.monotonic() + 20
    while Path(f"/proc/{int(said.stdout)}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{int(said.stdout)}").exists()


# -- what dies


def test_text_of_killed_parser_fails_and_next_text_is_parsed(cutter: CodeCutter) -> None:
    pid = stop(cutter)
    timer = later(0.2, lambda: os.kill(pid, signal.SIGKILL))
    with pytest.raises(CodeUnparsed) as failed:
        cutter.cut_text("def f():\n    pass\n", "python", 100)
    timer.join()
    assert str(failed.value) == "cannot be cut (its parser was ended by SIGKILL)"
    assert [piece.symbol for piece in cutter.cut_text("def f():\n    pass\n", "python", 100)] == ["f"]
    assert process_of(cutter) != pid


def test_killed_parser_loses_at_most_the_text_in_progress(cutter: CodeCutter) -> None:
    """The child has the earlier texts; the next child gets them again."""
    tasks = [CodeTask(f"def f{number}():\n    pass\n", "python") for number in range(10)]
    result = cutter.cut_all(tasks)
    assert isinstance(next(result), list)
    pid = process_of(cutter)
    os.kill(pid, signal.SIGKILL)
    outcomes = list(result)
    assert len(outcomes) == 9
    failed = [number for number, outcome in enumerate(outcomes, 1) if isinstance(outcome, CodeUnparsed)]
    assert len(failed) <= 1
    for number, outcome in enumerate(outcomes, 1):
        if number not in failed:
            assert isinstance(outcome, list)
            assert [piece.symbol for piece in outcome] == [f"f{number}"]


def test_child_that_died_between_two_texts_is_replaced(cutter: CodeCutter) -> None:
    cutter.cut_text("f(12)\n", "python", 100)
    os.kill(process_of(cutter), signal.SIGKILL)
    process = cutter._children[0]._process
    assert process
    process._process.wait()
    assert cutter.cut_text("f(12)\n", "python", 100) == [CodePiece(0, 6)]


def test_memory_of_the_parent_process_is_not_counted() -> None:
    """Else each text in a large process would start a child of its own."""
    held = bytearray(b"x") * (150 * MIB)
    with CodeCutter(ConversionLimits(max_memory=200 * MIB)) as cutter:
        cutter.cut_text("f(12)\n", "python", 100)
        first = process_of(cutter)
        cutter.cut_text("g(12)\n", "python", 100)
        assert process_of(cutter) == first
    assert len(held)


def test_waiting_has_an_end() -> None:
    with CodeCutter(ConversionLimits(max_seconds=5)) as cutter:
        stop(cutter)
        with pytest.raises(CodeUnparsed, match="takes more than 5 seconds to be cut"):
            cutter.cut_text("f(12)\n", "python", 100)
        assert cutter.cut_text("f(12)\n", "python", 100) == [CodePiece(0, 6)]


@pytest.mark.skipif(sys.platform != "linux", reason="macOS takes the limit and does not keep it")
def test_parser_that_is_out_of_memory_costs_one_text() -> None:
    """Its process has used too much for another text, too, after each of them."""
    texts = ["f(12)\n", "class A:\n  def f(self, a, b): return a, b\n" * 11_000, "g(12)\n"]
    with CodeCutter(ConversionLimits(max_memory=40 * MIB)) as cutter:
        first, large, last = cutter.cut_all([CodeTask(text, "python") for text in texts])
    assert first == last == [CodePiece(0, 6)]
    assert isinstance(large, CodeUnparsed)
    assert large.reason.startswith("cannot be cut (its parser was ended by SIG")


# -- untrusted text


def hostile(size: int) -> Iterator[str]:
    for part in (
        "(",
        "{",
        "}",
        '"',
        "<",
        "a<",
        "()",
        "x=",
        "/*",
        "\\\n",
        "$",
        "#",
        "\0",
        "if ",
        "(\n",
        "r#",
        "((a)",
        "<<E\n",
        "\n",
    ):
        yield part * (size // len(part))
    yield "(" * (size // 2) + ")" * (size // 2)
    chance = random.Random(1)
    yield "".join(chance.choice("(){}[]<>\"'`;:,.=+-*/&|$#@!? \n\tab1_\\") for _ in range(size))


@pytest.mark.parametrize("language", sorted(GRAMMARS))
@pytest.mark.sample(2)
def test_cutter_bounds_time_for_hostile_code(cutter: CodeCutter, language: str) -> None:
    """Some of it took a minute and 8 GB, in 50,000 characters, before operations were counted."""
    texts = list(hostile(20_000))
    for text, result in zip(texts, cutter.cut_all(CodeTask(text, language) for text in texts), strict=True):
        assert isinstance(result, list), (text[:20], result)
        assert "".join(text[piece.start : piece.end] for piece in result) == text


def test_five_megabytes_of_brackets_take_no_time(cutter: CodeCutter) -> None:
    text = "(" * 5_000_000
    assert len(cutter.cut_text(text, "python", 1500)) == 3334
