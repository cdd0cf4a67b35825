"""A server that speaks MySQL's protocol and means ill. It stands for a Dolt server that was broken
into, which cannot be had here; it has no database.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence

HOST = "127.0.0.1"
OK = b"\x00\x00\x00\x02\x00\x00\x00"
_END = b"\xfe\x00\x00\x02\x00"
_LONGEST_PACKET = 0xFFFFFF

PROTOCOL_41, WITH_DATABASE, SECURE, BY_PLUGIN = 0x200, 0x8, 0x8000, 0x80000
ABILITIES = PROTOCOL_41 | WITH_DATABASE | SECURE | BY_PLUGIN

TEXT, BLOB, NUMBER = 253, 252, 8
UTF8, BINARY = 45, 63

Answer = Callable[["Conversation"], None]


class Conversation:
    """One client. `heard` is everything that it sent."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.heard = b""
        self.number = 0

    def say(self, *packets: bytes) -> None:
        for packet in packets:
            self.client.sendall(struct.pack("<I", len(packet))[:3] + bytes([self.number % 256]) + packet)
            self.number += 1

    def hear(self) -> bytes:
        head = self._read(4)
        self.number = head[3] + 1
        return self._read(int.from_bytes(head[:3], "little"))

    def say_rows(self, columns: Sequence[tuple[str, int, int]], *rows: Sequence[bytes]) -> None:
        """`columns`: name, type and character set of each."""
        self.say(bytes([len(columns)]), *(_column(*column) for column in columns), _END)
        self.say(*(b"".join(map(_text, row)) for row in rows), _END)

    def say_forever(self) -> None:
        """A row that has no end."""
        self.say(b"\x01", _column("v", TEXT, UTF8), _END)
        while True:
            self.say(bytes(_LONGEST_PACKET))

    def _read(self, length: int) -> bytes:
        result = b""
        while len(result) < length:
            piece = self.client.recv(length - len(result))
            if not piece:
                raise ConnectionError
            result += piece
        self.heard += result
        return result


def _text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def _column(name: str, kind: int, charset: int) -> bytes:
    names = b"".join(map(_text, (b"def", b"", b"", b"", name.encode(), b"")))
    return names + b"\x0c" + struct.pack("<HIBHB", charset, 1024, kind, 0, 0) + b"\0\0"


def greet(conversation: Conversation) -> None:
    """Greet, up to the client's description of itself."""
    low, high = ABILITIES & 0xFFFF, ABILITIES >> 16
    conversation.say(
        b"\x0a8.0.33\0"
        + struct.pack("<I", 1)
        + b"saltsalt\0"
        + struct.pack("<HBHHB", low, UTF8, 2, high, 21)
        + bytes(10)
        + b"saltsaltsalt\0mysql_native_password\0"
    )
    conversation.hear()


def answer_queries(answer: Answer) -> Answer:
    """A server that is Dolt as far as the login shows, and then gives every query this answer."""

    def speak(conversation: Conversation) -> None:
        greet(conversation)
        conversation.say(OK)
        while True:
            statement = conversation.hear()[1:]
            if b"dolt_version()" in statement:
                conversation.say_rows([("version", TEXT, UTF8)], [b"2.3.1"])
            elif statement.startswith((b"SET", b"USE")):
                conversation.say(OK)
            else:
                answer(conversation)

    return speak


@contextlib.contextmanager
def serving(speak: Answer) -> Iterator[tuple[str, list[Conversation]]]:
    """Its address, and the conversations so far."""
    conversations: list[Conversation] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                conversations.append(Conversation(client))
                with client, contextlib.suppress(OSError):
                    speak(conversations[-1])

    with socket.create_server((HOST, 0)) as listening:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"{HOST}:{listening.getsockname()[1]}", conversations
        finally:
            listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)
