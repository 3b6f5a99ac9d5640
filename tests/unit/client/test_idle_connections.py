"""Connections that nobody looks at for long: what they leave alone, and what they cost others."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import zmq

from ledgermq.client.core.connection import ZmqConnection
from tests.suite.patience import PATIENCE_S

OTHERS = 300


class Door:
    """Takes each connection, and ends it at once."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._socket.getsockname()[1]}"
        self.taken = 0
        self._thread = Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        while True:
            try:
                taken, _ = self._socket.accept()
            except OSError:
                # It is closed.
                return
            self.taken += 1
            taken.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(PATIENCE_S)


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.close()


def wait_for_end(connection: ZmqConnection) -> None:
    """Until its monitor tells of it; nothing is read."""
    assert connection._monitor.poll(1_000 * PATIENCE_S)


def test_who_is_not_looked_at_connects_once_and_no_more(door: Door) -> None:
    """ZeroMQ would tell of each attempt, and wait for who reads that: with its only thread, so that
    no other client of the process is answered any more.
    """
    with zmq.Context() as context:
        idle = ZmqConnection(context, door.endpoint, None)
        try:
            wait_for_end(idle)
            # The clock: each takes longer than nothing, and together longer than a pause of old.
            for _ in range(OTHERS):
                other = ZmqConnection(context, door.endpoint, None)
                wait_for_end(other)
                other.close(0)
            has_ended = idle.has_ended(0.0)
        finally:
            idle.close(0)

    assert has_ended
    assert door.taken == 1 + OTHERS


def test_a_connection_that_nobody_takes_has_ended(tmp_path: Path) -> None:
    with zmq.Context() as context:
        made = [
            ZmqConnection(context, endpoint, None)
            for endpoint in ("tcp://127.0.0.1:1", f"ipc://{tmp_path}/nobody")
        ]
        try:
            for one in made:
                wait_for_end(one)
            ended = [one.has_ended(0.0) for one in made]
        finally:
            for one in made:
                one.close(0)

    assert ended == [True, True]
