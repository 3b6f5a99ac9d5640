"""Requests to whose rows they are: who is asked, who is not, what is told of what goes wrong."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.gateway.code_rights import ADMIN, USER
from ledgermq.gateway.context import PortContext
from ledgermq.gateway.dispatcher import Dispatcher
from ledgermq.gateway.requests import Asked, Code, Taken
from ledgermq.gateway.transport.listening import open_listeners
from ledgermq.gateway.transport.remoting_sockets import Connection, RemotingLimits, RemotingSockets
from ledgermq.model.config.settings import Settings, StoreSection
from ledgermq.model.errors import BusyError, NotLeaderError
from ledgermq.process.clock import MACHINE_CLOCK
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command, decode_command, encode_command
from tests.suite.patience import PATIENCE_S


class Port:
    """A ``Port`` whose rows a test has given, and a client of it."""

    def __init__(self, directory: Path) -> None:
        self.sockets = RemotingSockets(
            open_listeners([("127.0.0.1", 0)]), RemotingLimits(), now_ms=0
        )
        self.client = socket.create_connection(self.sockets.addresses[0], timeout=PATIENCE_S)
        self.others: list[Asked] = []
        self.gone: list[Connection] = []
        self.hands_over = False
        self.refusal: Exception | None = None
        settings = Settings(store=StoreSection(path_root_dir=directory))
        environment: Any = SimpleNamespace(settings=settings, clock=MACHINE_CLOCK)
        parts: dict[str, Any] = dict.fromkeys(PortContext.__dataclass_fields__)
        self._context = PortContext(
            **{
                **parts,
                "environment": environment,
                "tables": AppliedTables(directory, settings),
                "counts": [0] * 64,
                "sockets": self.sockets,
            }
        )

    def serve(self, *rows: Code) -> Dispatcher:
        self.dispatcher = Dispatcher(self, self._context, rows)
        return self.dispatcher

    def ask(self, code: int, *, wait: bool = True) -> Command | None:
        """The reply to one request; None where none has come when it was served."""
        self.send(code)
        while not self.dispatcher.serve(0):
            pass
        self.sockets.flush()
        return self.received() if wait else None

    def send(self, code: int) -> None:
        self.client.sendall(b"".join(map(bytes, encode_command(Command(code, 7)))))

    def received(self) -> Command | None:
        head = self.client.recv(4, socket.MSG_WAITALL)
        if not head:
            return None
        size = int.from_bytes(head, "big")
        return decode_command(memoryview(self.client.recv(size, socket.MSG_WAITALL)))

    def close(self) -> None:
        self.sockets.close()
        self.client.close()

    def is_for_others(self, row: Code, connection: Connection) -> bool:
        if self.refusal is not None:
            raise self.refusal
        return self.hands_over

    def take_other(self, asked: Asked) -> None:
        self.others.append(asked)

    def reply(self, asked: Asked, reply: Command) -> None:
        self.sockets.send(asked.connection, reply)

    def forget(self, connection: Connection) -> None:
        self.gone.append(connection)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    port = Port(tmp_path)
    yield port
    port.close()


def answered(asked: Asked) -> Command:
    return asked.command.reply(remark="here")


def busy(_asked: Asked) -> Command:
    raise BusyError("too many")


def broken(_asked: Asked) -> Command:
    raise ZeroDivisionError


def row(answer: Any, **more: Any) -> Code:
    return Code(RequestCode.GET_MAX_OFFSET, answer, USER, **more)


def test_a_code_is_answered_by_its_row_and_one_without_is_for_others(port: Port) -> None:
    port.serve(row(answered))
    reply = port.ask(RequestCode.GET_MAX_OFFSET)
    port.ask(9_999, wait=False)

    assert reply is not None and (reply.opaque, reply.remark) == (7, "here")
    assert [asked.command.code for asked in port.others] == [9_999]


def test_what_is_for_others_now_is_not_asked_here(port: Port) -> None:
    port.serve(row(broken))
    port.hands_over = True
    port.ask(RequestCode.GET_MAX_OFFSET, wait=False)

    assert [asked.command.code for asked in port.others] == [RequestCode.GET_MAX_OFFSET]


def test_why_there_is_no_answer_is_told(port: Port) -> None:
    port.serve(row(busy))
    told = port.ask(RequestCode.GET_MAX_OFFSET)
    port.refusal = NotLeaderError("node is starting")
    starting = port.ask(RequestCode.GET_MAX_OFFSET)

    assert told is not None and starting is not None
    assert (told.code, starting.code) == (
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
    )
    assert "too many" in (told.remark or "")


def test_who_lacks_the_right_of_the_row_is_refused_before_anybody_is_asked(port: Port) -> None:
    port.serve(Code(RequestCode.GET_BROKER_CONFIG, broken, ADMIN))
    reply = port.ask(RequestCode.GET_BROKER_CONFIG)

    assert reply is not None and reply.code == ResponseCode.NO_PERMISSION


def test_what_nobody_has_thought_of_ends_the_connection_of_its_sender_alone(port: Port) -> None:
    port.serve(row(broken))
    other = socket.create_connection(port.sockets.addresses[0], timeout=PATIENCE_S)
    reply = port.ask(RequestCode.GET_MAX_OFFSET)
    end = port.received()
    port.client = other
    again = port.ask(RequestCode.GET_MAX_OFFSET)

    assert reply is not None and reply.code == ResponseCode.SYSTEM_ERROR
    assert end is None
    assert again is not None
    port.dispatcher.serve(0)
    assert len(set(port.gone)) == 2


@pytest.mark.parametrize(("is_for_sender", "asked"), [(True, 0), (False, 1)])
def test_of_who_has_gone_only_what_concerns_others_is_done(
    port: Port, is_for_sender: bool, asked: int
) -> None:
    took: list[Asked] = []

    def take(request: Asked) -> None:
        took.append(request)

    port.serve(
        Code(RequestCode.SEND_MESSAGE, take, USER, taken=Taken.AT_ONCE),
        row(take, is_for_sender=is_for_sender),
    )
    for code in (RequestCode.SEND_MESSAGE, RequestCode.GET_MAX_OFFSET):
        port.send(code)
    while not port.dispatcher.is_behind:
        port.dispatcher.serve_short(0)
    port.sockets.close_one(took.pop().connection, "")
    port.dispatcher.serve(0)

    assert len(took) == asked


def test_short_requests_are_taken_as_they_come_and_others_in_their_turn(port: Port) -> None:
    took: list[int] = []

    def take(request: Asked) -> None:
        took.append(request.command.code)

    port.serve(
        Code(RequestCode.SEND_MESSAGE, take, USER, taken=Taken.AT_ONCE),
        Code(RequestCode.PULL_MESSAGE, take, USER, taken=Taken.IF_NOBODY_WAITS),
        row(take),
    )
    dispatcher, codes = (
        port.dispatcher,
        (
            RequestCode.PULL_MESSAGE,
            RequestCode.SEND_MESSAGE,
            RequestCode.GET_MAX_OFFSET,
            RequestCode.PULL_MESSAGE,
        ),
    )
    for code in codes:
        port.send(code)
    while not dispatcher.is_behind:
        dispatcher.serve_short(0)
    at_once = list(took)
    while len(took) < len(codes):
        dispatcher.serve(0)

    assert at_once == [RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE]
    assert tuple(took) == codes
