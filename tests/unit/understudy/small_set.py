"""A small master that a controller has elected, and is the controller, too."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.small_store import SIZES
from tests.unit.understudy.small_master import FRAME, SmallMaster, _exactly, with_closed

GREETING = struct.Struct(">ihhq")
HANDSHAKE = struct.Struct(">iiqi")
EPOCH = struct.Struct(">iq")
TRANSFER = struct.Struct(">iiqiqq")
REPORT = struct.Struct(">iq")


class SmallElected(SmallMaster):
    """Serves ``root`` as an elected master does.

    Attributes:
        epochs: number and start of each.
        confirmed: what it says is confirmed; None: all that it has.
        leader: who is the master, as it says when it is asked as the controller.
        greetings: flags and ids of the slaves that have connected.
        handshake: what it answers to them; None: what it has.
    """

    def __init__(self, root: Path, epochs: list[tuple[int, int]]) -> None:
        super().__init__(root)
        self.epochs = epochs
        self.confirmed: int | None = None
        self.greetings: list[tuple[int, int, int]] = []
        self.handshake: bytes | None = None
        host, _, port = self.address.rpartition(":")
        self.config |= {
            "brokerName": "small",
            "brokerRole": "SYNC_MASTER",
            "enableControllerMode": "true",
            "controllerAddr": f"127.0.0.1:1;{self.remoting}",
            "allAckInSyncStateSet": "true",
            "brokerIP2": host,
            "haListenPort": port,
            "maxHashSlotNum": str(SIZES["max_hash_slot_num"]),
            "maxIndexNum": str(SIZES["max_index_num"]),
        }
        self.version = "V5_5_1"
        self.leader = self.remoting

    def _answer(self, code: int, fields: object) -> tuple[dict[str, str], bytes | None]:
        if code == 1_005:
            return {"controllerLeaderAddress": self.remoting}, b""
        if code == 1_004:
            return {"masterAddress": self.leader}, b""
        return super()._answer(code, fields)

    def _slave(self, connection: socket.socket) -> None:
        self._sockets.append(connection)
        greeting = _exactly(connection, GREETING.size)
        if greeting is None:
            return
        state, *rest = GREETING.unpack(greeting)
        assert state == 1
        self.greetings.append((rest[0], rest[1], rest[2]))
        try:
            connection.sendall(self._handshake())
            asked = _exactly(connection, REPORT.size)
            if asked is None:
                return
            heard = [REPORT.unpack(asked)[1]]
            self.reports.append(heard)
            hearing = threading.Thread(target=self._hear, args=(connection, heard), daemon=True)
            hearing.start()
            self._push_all(connection, heard[0])
        except OSError:
            return
        finally:
            with_closed(connection)

    def _handshake(self) -> bytes:
        if self.handshake is not None:
            return self.handshake
        body = b"".join(EPOCH.pack(*row) for row in self.epochs)
        last = self.epochs[-1][0] if self.epochs else -1
        return HANDSHAKE.pack(1, len(body), self.end, last) + body

    def _hear(self, connection: socket.socket, heard: list[int]) -> None:
        while report := _exactly(connection, REPORT.size):
            with self.changed:
                heard.append(REPORT.unpack(report)[1])
                self.changed.notify_all()

    def _push_all(self, connection: socket.socket, position: int) -> None:
        # As RocketMQ says it where there is nothing yet.
        position = position or self.first
        while self.is_open:
            body = self.bytes_from(position, FRAME) if position < self.end else b""
            ends = [start for _, start in self.epochs if start > position]
            body = body[: min(ends, default=position + FRAME) - position]
            # A sign of life has the first epoch, and the last body of one the next one's number.
            at = position + len(body) if body else self.epochs[0][1]
            number, start = next(row for row in reversed(self.epochs) if row[1] <= at)
            confirmed = self.end if self.confirmed is None else self.confirmed
            head = TRANSFER.pack(2, len(body), position if body else -1, number, start, confirmed)
            connection.sendall(head + body)
            position += len(body)
            if not body:
                with self.changed:
                    self.changed.wait(0.2)


@contextmanager
def small_elected(root: Path, epochs: list[tuple[int, int]]) -> Iterator[SmallElected]:
    """An elected master on the store ``root`` until the end of the block."""
    master = SmallElected(root, epochs)
    try:
        yield master
    finally:
        master.close()


Change = Callable[[SmallElected], None]
