"""The loop that the package's docstring shows answers requests."""

from __future__ import annotations

import socket

import ledgermq.remoting
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import ONEWAY, Command, decode_command, encode_command
from ledgermq.remoting.frames import FrameSplitter
from tests.suite.docstring_code import shown_code


def test_the_loop_of_the_docstring_answers_requests() -> None:
    client, connection = socket.socketpair()
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    asked = [
        Command(code, 1, {"topic": "T"}),
        Command(RequestCode.HEART_BEAT, 2, flag=ONEWAY),
        Command(RequestCode.HEART_BEAT, 3),
    ]
    with client, connection:
        client.sendall(b"".join(part for one in asked for part in encode_command(one)))
        client.shutdown(socket.SHUT_WR)
        names = {
            "FrameSplitter": FrameSplitter,
            "RequestCode": RequestCode,
            "ResponseCode": ResponseCode,
            "connection": connection,
            "decode_command": decode_command,
            "encode_command": encode_command,
            "routes": {"T": b"{}"},
        }

        exec(shown_code(ledgermq.remoting), names)

        connection.shutdown(socket.SHUT_WR)
        replies = list(map(decode_command, FrameSplitter().feed(client.recv(65_536))))

    assert [(one.opaque, one.code, bytes(one.body)) for one in replies] == [
        (1, ResponseCode.SUCCESS, b"{}"),
        (3, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, b""),
    ]
