"""How processes end, and work in threads."""

from __future__ import annotations

import re
import resource
import signal
import subprocess
import sys
import threading

import pytest

from vmrag_link.thread_task import ThreadTask


def ended(*lines: str) -> tuple[int, str]:
    script = "\n".join(("import atexit, sys, threading, time", "from vmrag_link import startup", *lines))
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.returncode, result.stdout


def test_process_ends_at_once_with_everything_written():
    assert ended("atexit.register(print, 'late')", "print('said', end='')", "startup.exit_process(3)") == (3, "said")


def test_process_waits_for_its_working_thread():
    work = "def work(): time.sleep(0.2); print('done')"
    assert ended(work, "threading.Thread(target=work).start()", "startup.exit_process(3)") == (3, "done\n")


def test_typing_extensions_is_unloaded_at_the_start_of_a_process():
    begin = (
        "startup.prepare_start()",
        "startup.prepare_start()",
        "import typing_extensions, msgspec, gc",
        "print(gc.isenabled())",
    )
    assert ended(*begin, "startup.enable_collection()", "print(gc.isenabled())") == (0, "False\nTrue\n")


def test_thread_task_returns_result_or_raises_error_to_its_caller():
    go = threading.Event()
    waiting = ThreadTask(lambda: go.wait(10))
    go.set()
    assert waiting.result() is True
    failed = ThreadTask(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failed.result()


INTERRUPTED = "Interrupted. No stored data was lost."
MODULES = ["vmrag_link.cli.main", "vmrag_link.cli.mcp", "vmrag_hooks"]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("imported", ["vmrag_link.startup", "msgspec|click"])
def test_ctrl_c_prints_one_line_while_modules_are_imported(tmp_path, module, imported):
    argv = [sys.executable, "-X", "importtime", "-m", module, "status"]
    for _ in range(20):  # a fast process can end before the signal arrives
        with subprocess.Popen(
            argv, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            for line in process.stderr:
                if re.search(rf"\| +({imported})$", line):
                    process.send_signal(signal.SIGINT)
                    break
            _, said = process.communicate(timeout=60)
        if process.returncode in (130, -signal.SIGINT):
            break
    lines = [line for line in said.splitlines() if not line.startswith("import time:")]
    assert [line for line in lines if "vmrag-mcp" not in line] == [INTERRUPTED]
    assert process.returncode in (130, -signal.SIGINT)


def test_unexpected_errors_keep_their_traceback():
    script = "from vmrag_link import startup\n1 / 0"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" in process.stderr
    assert "ZeroDivisionError" in process.stderr


# -- no folder in which a file can be written


def write_nothing() -> None:
    """Let no file of the process grow, as on a full disk: no temporary folder is usable then."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def test_bug_log_is_left_out_if_it_cannot_be_written(tmp_path):
    script = (
        "from vmrag_link.ops import buglog\n"
        "path = buglog.write_log(ValueError('x'), [])\n"
        "print(path, buglog.suggest_report(path))"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=write_nothing,
    )
    assert process.stderr == ""
    assert process.stdout.startswith("None run 'export TMPDIR=")


def test_demo_names_the_missing_temporary_folder(tmp_path):
    process = subprocess.run(
        [sys.executable, "-m", "vmrag_link.cli.main", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=write_nothing,
    )
    assert (process.returncode, process.stderr.splitlines()) == (
        3,
        [
            "error: cannot write to a temporary folder.",
            "hint: run 'export TMPDIR=FOLDER' with a folder that you can write, then run the command again",
        ],
    )
