"""Servers that are fake, hang, or were broken into get nothing from vmrag."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import pytest

from tests.support import mysql_stub
from tests.support.mysql_stub import BINARY, BLOB, NUMBER, TEXT, UTF8, answer_queries, greet, serving
from tests.support.pace import slack
from vmrag_link.engines.dolt import server_session
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.server import ServerConnection
from vmrag_link.errors import EngineFailed, LimitExceeded, ServerUnreachable, StatementGivenUp

PASSWORD = "opensesame"


def connection(address, *, longest=2_000_000, **fields):
    return ServerConnection(
        DoltAccess(server=address, database="kb", password=PASSWORD, **fields), max_answer_bytes=longest
    )


def ask(speak, **fields):
    """Return the error or result of one query, and everything that the server received."""
    with serving(speak) as (address, conversations):
        server = connection(address, **fields)
        try:
            return server.query_rows("SELECT v FROM t"), b"".join(conversation.heard for conversation in conversations)
        except Exception as error:  # noqa: BLE001  a bug is not among those that tests ask for
            return error, b"".join(conversation.heard for conversation in conversations)
        finally:
            server.end_session()


def test_stub_is_taken_for_dolt_or_its_attacks_would_show_nothing():
    rows, _ = ask(answer_queries(lambda it: it.say_rows([("v", TEXT, UTF8), ("n", NUMBER, UTF8)], [b"text", b"7"])))
    assert rows == [{"v": "text", "n": 7}]


def test_row_without_an_end_is_not_waited_for():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error, _ = ask(answer_queries(mysql_stub.Conversation.say_forever), longest=20_000_000)
    assert isinstance(error, LimitExceeded)
    assert "more than 20 MB" in error.message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kilobytes"


@pytest.mark.parametrize(
    "column", [("v", BLOB, BINARY), ("v", TEXT, BINARY)], ids=["bytes", "text that has no character set"]
)
def test_rows_with_invalid_text_or_number_raise_engine_failed(column):
    error, _ = ask(answer_queries(lambda it: it.say_rows([column], [b"\xff\xfe"])))
    assert isinstance(error, EngineFailed)
    assert "bytes instead of a text" in error.message


@pytest.mark.parametrize(
    ("column", "value"),
    [(("v", TEXT, UTF8), b"\xff\xfe"), (("v", NUMBER, UTF8), b"many")],
    ids=["not UTF-8", "no number"],
)
def test_malformed_value_ends_the_session(column, value):
    error, _ = ask(answer_queries(lambda it: it.say_rows([column], [value])))
    assert isinstance(error, ServerUnreachable)


def test_column_that_is_missing_is_an_error_and_no_bug():
    rows, _ = ask(answer_queries(lambda it: it.say_rows([("other", TEXT, UTF8)], [b"x"])))
    with pytest.raises(EngineFailed, match="without the column 'v'"):
        rows[0]["v"]


def test_file_requested_by_the_server_is_not_sent(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("the content of the file")
    error, heard = ask(answer_queries(lambda it: (it.say(b"\xfb" + bytes(secret)), it.hear())))
    assert isinstance(error, ServerUnreachable)
    assert b"the content" not in heard


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog", b"no_such_plugin"])
def test_password_requested_in_plain_text_is_not_sent(plugin):
    def speak(it):
        greet(it)
        it.say(b"\xfe" + plugin + b"\0" + b"\x04Password: ")
        it.hear()

    error, heard = ask(speak)
    assert isinstance(error, EngineFailed)
    assert PASSWORD.encode() not in heard
    assert PASSWORD not in str(error.to_dict())


def test_password_is_not_sent_to_a_server_that_could_decrypt_it():
    def speak(it):
        greet(it)
        it.say(b"\xfe" + b"caching_sha2_password\0" + b"a" * 20 + b"\0")
        it.hear()
        it.say(b"\x01\x04")  # a request for the whole password; the next one would be for vmrag's key
        it.hear()

    error, _ = ask(speak)
    assert isinstance(error, ServerUnreachable)
    assert "unencrypted" in error.message


def test_connection_sends_nothing_without_required_encryption():
    error, heard = ask(lambda it: (greet(it), it.hear()), tls=True)
    assert isinstance(error, ServerUnreachable)
    assert heard == b""


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        b"\0" * 100,
        b"\xff" * 100,
        b"\x4a\0\0\0\x0a8.0.33" + b"\xff" * 67,
        b"\x0a\0\0\0\x0aeight.0\0\0",
    ],
    ids=["ssh", "http", "nothing", "zeros", "ones", "no end of the version", "no version"],
)
def test_connection_rejects_other_programs_without_sending_password(said):
    error, heard = ask(lambda it: it.client.sendall(said))
    assert isinstance(error, ServerUnreachable)
    assert PASSWORD.encode() not in heard


@pytest.mark.parametrize("error", [b"\xff\x51\x04#HY000\x1b[31m\n::error::x", b"\xff", b"\xff\x51\x04"])
def test_server_error_messages_are_escaped(error):
    raised, _ = ask(answer_queries(lambda it: it.say(error)))
    assert isinstance(raised, EngineFailed)
    assert not set("\x1b\n") & set(raised.message)


def test_server_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(server_session, "LOGIN_SECONDS", 0.2)
    begun = time.monotonic()
    error, _ = ask(lambda it: it.client.recv(1))
    assert isinstance(error, ServerUnreachable)
    assert time.monotonic() - begun < 5 * slack()


def test_slow_server_is_abandoned(monkeypatch):
    monkeypatch.setattr(server_session, "STATEMENT_SECONDS", 0.3)

    def drip(it):
        it.client.sendall(b"\xff\xff\xff\x01")
        while True:
            it.client.sendall(b"\0")
            time.sleep(0.05)

    error, _ = ask(answer_queries(drip))
    assert isinstance(error, StatementGivenUp)


def test_port_without_listener_raises_server_unreachable():
    with serving(lambda it: None) as (address, _):
        pass
    with pytest.raises(ServerUnreachable):
        connection(address).query_rows("SELECT 1")


def test_missing_pymysql_error_names_the_installation_command():
    script = (
        "import sys; sys.modules['pymysql'] = None\nfrom vmrag_link.engines.dolt import server_session\n"
        "try:\n    server_session.import_pymysql()\nexcept Exception as error:\n    print(type(error).__name__, error.hint)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "EngineFailed run 'python -m pip install \"vmrag-link[dolt]\"'\n"
