"""Dolt's program: found, checked and run, through doltcli and without it."""

import os
import subprocess

import pytest

from tests.support.dolt import require
from tests.support.engines import AUTHOR, DATE, root
from vmrag_link import env, proc
from vmrag_link.engines import opening
from vmrag_link.engines.dolt import program
from vmrag_link.errors import DoltMissing, EngineFailed, EngineUnwritable


def command(folder, text, name="dolt"):
    """A program that is a line of sh, on a PATH of its own."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def dolt(tmp_path, monkeypatch):
    """Return the path of a program that is first on PATH and prints the text of the test."""

    def make(text):
        path = command(tmp_path / "bin", text)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
        return path

    return make


SAYS_ITS_VERSION = '[ "$1" = version ] && { echo "dolt version 2.3.1"; exit; }\n'


@pytest.fixture(params=["doltcli", "proc"])
def adapter(request, monkeypatch):
    """Both ways of `run`."""
    if request.param == "doltcli":
        pytest.importorskip("doltcli", reason="doltcli is not installed")
        program._import_doltcli.cache_clear()  # another test has looked where it was hidden
        monkeypatch.setattr(proc, "run", checking_only(proc.run))
    else:
        monkeypatch.setattr(program, "_import_doltcli", lambda: None)
    return request.param


def checking_only(run):
    def checked(argv, **options):
        assert argv[1] == "version", "doltcli runs the rest"
        return run(argv, **options)

    return checked


# -- which program


def test_missing_dolt_error_explains_the_installation(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DoltMissing) as raised:
        program.find_program()
    assert "docs.dolthub.com" in raised.value.hint
    assert "vmrag.dolt.binary" in raised.value.hint


def test_program_that_is_named_goes_before_the_one_on_path(dolt, tmp_path):
    dolt("echo 'dolt version 2.3.1'")
    named = command(tmp_path / "elsewhere", "echo 'dolt version 2.10.0-rc1'")
    assert program.find_program() == program.Program(str(tmp_path / "bin" / "dolt"), "2.3.1")
    assert program.find_program(str(named)) == program.Program(str(named), "2.10.0-rc1")


@pytest.mark.parametrize("name", ["missing", "folder", "not-executable"])
def test_named_program_that_cannot_be_run_is_refused(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    with pytest.raises(DoltMissing, match=f"cannot run .*{name}"):
        program.find_program(str(tmp_path / name))


@pytest.mark.parametrize(
    "text",
    [
        "echo 'dolt 0.9 (a planner)'",
        "echo 'usage: dolt TASK' >&2; exit 1",
        "exit 0",
        "printf 'dolt version \\033[31m9'",
    ],
    ids=["another", "usage", "silent", "hostile"],
)
def test_different_program_of_that_name_is_rejected(dolt, text):
    path = dolt(text)
    with pytest.raises(DoltMissing, match=f"^{path} is not the database Dolt") as raised:
        program.find_program()
    assert raised.value.message.isprintable()


def test_outdated_dolt_is_rejected(dolt):
    dolt("echo 'dolt version 2.2.11'; echo 'Warning: you are on an old version of Dolt.'")
    with pytest.raises(DoltMissing, match=r"is Dolt 2\.2\.11; vmrag needs 2\.3\.0 or newer"):
        program.find_program()


def test_only_the_first_line_is_the_version(dolt):
    dolt("printf 'dolt version 2.3.1\\nWarning: unable to query latest released Dolt version'")
    assert program.find_program().version == "2.3.1"


def test_replaced_program_is_checked_again(dolt):
    dolt("echo 'dolt version 2.3.1'")
    assert program.find_program().version == "2.3.1"
    dolt("echo 'dolt version 2.12.0'")
    assert program.find_program().version == "2.12.0"


def test_relative_path_entry_does_not_find_dolt_in_work_tree(monkeypatch, tmp_path):
    command(tmp_path, "echo 'dolt version 2.3.1'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".:")
    with pytest.raises(DoltMissing):
        program.find_program()


def test_version_check_contacts_no_host_and_keeps_user_configuration(dolt, tmp_path):
    path = dolt(
        f'env > "{tmp_path}/seen"; cat "$DOLT_ROOT_PATH/.dolt/config_global.json" >> "{tmp_path}/seen"; echo dolt version 2.3.1'
    )
    assert program.find_program(str(path)).version == "2.3.1"
    seen = (tmp_path / "seen").read_text()
    assert '"versioncheck.disabled":"true"' in seen
    assert '"metrics.disabled":"true"' in seen
    assert "DOLT_DISABLE_EVENT_FLUSH=1" in seen
    assert f"DOLT_ROOT_PATH={os.environ['DOLT_ROOT_PATH']}\n" not in seen


def test_real_program_prints_its_version_and_leaves_no_file(tmp_path, monkeypatch):
    path = require()
    monkeypatch.setenv("DOLT_ROOT_PATH", str(tmp_path / "root"))
    program._programs.clear()
    assert program.find_program(path).path == path
    assert list(tmp_path.iterdir()) == []


# -- running it


def test_its_output_is_returned_as_it_is(dolt, adapter, tmp_path):
    dolt(SAYS_ITS_VERSION + "pwd; printf '%s|' \"$@\"")
    (tmp_path / ".dolt").mkdir()
    assert program.run_dolt(["sql", "-q", "ä $(x) '"], cwd=tmp_path) == f"{tmp_path}\nsql|-q|ä $(x) '|"


def test_path_that_reads_like_a_variable_is_run(tmp_path):
    (tmp_path / ".dolt").mkdir()
    path = command(tmp_path / "a=b", SAYS_ITS_VERSION + "echo ours")
    assert program.run_dolt(["true"], cwd=tmp_path, binary=str(path)) == "ours\n"


def test_its_complaint_is_made_safe(dolt, adapter, tmp_path, capfd, caplog):
    dolt(SAYS_ITS_VERSION + "echo in stdout; printf 'no such \\033]0;remote\\n::error::x' >&2; exit 3")
    (tmp_path / ".dolt").mkdir()
    with pytest.raises(EngineFailed) as raised:
        program.run_dolt(["push", "a b"], cwd=tmp_path)
    assert raised.value.message == "dolt push failed: no such \\x1b]0;remote\n    ::error::x"
    assert raised.value.hint == "run 'dolt push \"a b\"' to see the whole output"
    assert capfd.readouterr() == ("", ""), "doltcli logs what Dolt says"


@pytest.mark.parametrize("said", ["write /x: no space left on device", "open manifest: permission denied"])
def test_unwritable_disk_errors_keep_their_cause(dolt, adapter, tmp_path, said):
    dolt(SAYS_ITS_VERSION + f"echo '{said}' >&2; exit 1")
    (tmp_path / ".dolt").mkdir()
    with pytest.raises(EngineUnwritable, match=said):
        program.run_dolt(["gc"], cwd=tmp_path)


def test_output_with_invalid_utf_8_raises_engine_failed(dolt, adapter, tmp_path):
    dolt(SAYS_ITS_VERSION + r"printf '\377'")
    (tmp_path / ".dolt").mkdir()
    with pytest.raises(EngineFailed):
        program.run_dolt(["log"], cwd=tmp_path)


def test_program_inherits_no_git_variables(dolt, adapter, tmp_path, monkeypatch):
    dolt(SAYS_ITS_VERSION + "env")
    (tmp_path / ".dolt").mkdir()
    for name in env.GIT_SCRUBBED | env.DOLT_SCRUBBED:
        monkeypatch.setenv(name, "inherited")
    lines = program.run_dolt(["gc"], cwd=tmp_path).splitlines()
    assert "DOLT_DISABLE_EVENT_FLUSH=1" in lines
    assert f"DOLT_ROOT_PATH={os.environ['DOLT_ROOT_PATH']}" in lines, "credentials are this user's"
    assert [line for line in lines if line.endswith("=inherited")] == []


def test_dolt_does_not_read_standard_input(dolt, adapter, tmp_path):
    """An agent's client speaks there."""
    dolt(SAYS_ITS_VERSION + "cat")
    (tmp_path / ".dolt").mkdir()
    ours, theirs = os.dup(0), os.pipe()
    os.write(theirs[1], b"a call")
    os.dup2(theirs[0], 0)
    try:
        os.close(theirs[1])
        assert program.run_dolt(["gc"], cwd=tmp_path) == ""
        assert os.read(0, 10) == b"a call"
    finally:
        os.dup2(ours, 0)
        os.close(ours)
        os.close(theirs[0])


def test_input_environment_and_time_go_past_doltcli(dolt, tmp_path, monkeypatch):
    dolt(SAYS_ITS_VERSION + 'cat; echo "$EXTRA $DOLT_DISABLE_EVENT_FLUSH"; if [ "$1" = slow ]; then sleep 30; fi')
    (tmp_path / ".dolt").mkdir()
    monkeypatch.setattr(program, "_run_doltcli", None)
    assert program.run_dolt(["sql"], cwd=tmp_path, stdin=b"in\n") == "in\n 1\n"
    assert program.run_dolt(["sql"], cwd=tmp_path, env={"EXTRA": "x"}) == "x 1\n"
    with pytest.raises(EngineFailed, match=r"dolt slow did not finish within 0\.2 seconds"):
        program.run_dolt(["slow"], cwd=tmp_path, timeout=0.2)


def test_folder_that_is_gone_is_named(dolt, tmp_path):
    dolt(SAYS_ITS_VERSION)
    with pytest.raises(EngineFailed):
        program.run_dolt(["gc"], cwd=tmp_path / "gone")


def test_real_program_runs_through_both(adapter, tmp_path):
    path = require()
    identity = ["--name", "Ada", "--email", "ada@example.org"]
    environ = program.build_environment(tmp_path)
    subprocess.run([path, "init", *identity], cwd=tmp_path, env=environ, check=True, capture_output=True)
    assert program.run_dolt(["sql", "-r", "csv", "-q", "SELECT 1 AS one"], cwd=tmp_path) == "one\n1\n"
    with pytest.raises(EngineFailed, match="table not found: missing"):
        program.run_dolt(["sql", "-q", "SELECT * FROM missing"], cwd=tmp_path)


def test_commands_are_not_reported_to_the_makers_of_dolt(tmp_path, monkeypatch):
    require()
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DOLT_ROOT_PATH", str(home))
    engine = opening.create_engine("dolt", tmp_path / "kb", author=AUTHOR, date=DATE)
    for path in home.rglob("*.devts"):  # of its beginning, when the database has no configuration yet
        path.unlink()
    assert root(engine)
    engine.close()
    assert list(home.rglob("*.devts")) == []


# -- a program that answers


def test_piped_program_ends_with_its_input_in_its_own_process_group(tmp_path):
    with (tmp_path / "said").open("wb") as said:
        with proc.start_piped(
            ["sh", "-c", "echo ready; echo oops >&2; cat"], cwd=tmp_path, env=os.environ, stderr=said
        ) as it:
            assert it.stdin
            assert it.stdout
            assert it.stdout.readline() == b"ready\n"
            assert os.getpgid(it.pid) == it.pid != os.getpgid(0)
            it.stdin.write(b"again\n")
            it.stdin.close()
            assert it.stdout.read() == b"again\n"
        assert it.returncode == 0
    assert (tmp_path / "said").read_bytes() == b"oops\n"
