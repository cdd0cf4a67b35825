"""How processes end, and work in threads."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from vmrag_link.thread_task import ThreadTask


def ended(*lines: str) -> tuple[int, str]:
    script = "\n".join(("import atexit, sys, threading, time", "from vmrag_link import startup", *lines))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_process_ends_at_once_with_everything_written():
    assert ended("atexit.register(print, 'late')", "print('said', end='')", "startup.leave(3)") == (3, "said")


def test_a_process_whose_thread_is_at_work_waits_for_it():
    work = "def work(): time.sleep(0.2); print('done')"
    assert ended(work, "threading.Thread(target=work).start()", "startup.leave(3)") == (3, "done\n")


def test_nothing_of_typing_extensions_is_left_where_a_process_begins():
    begin = ("startup.begin()", "startup.begin()", "import typing_extensions, msgspec, gc", "print(gc.isenabled())")
    assert ended(*begin, "startup.imported()", "print(gc.isenabled())") == (0, "False\nTrue\n")


def test_a_thread_gives_its_result_or_its_error_to_the_caller_that_waits():
    go = threading.Event()
    waiting = ThreadTask(lambda: go.wait(10))
    go.set()
    assert waiting.result() is True
    failed = ThreadTask(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failed.result()
