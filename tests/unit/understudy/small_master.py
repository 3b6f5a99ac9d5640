"""A small master: serves a plain store as RocketMQ does, or says what no master would say."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgermq.formats.config_json import decode_document
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import decode_command, encode_command
from ledgermq.remoting.signature import ACCESS_KEY, is_signed
from ledgermq.store.files.file_names import file_name
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory

FRAME = 32 * 1024
HEADER = struct.Struct(">qi")

Push = Callable[["SmallMaster", socket.socket, int], None]


class SmallMaster:
    """Serves ``root``; ``push`` is what it says behind a slave's first report.

    Attributes:
        end: where its log ends; may grow up to what the files have.
        reports: all that slaves have reported, connection by connection.
        secrets: of its accounts by their access keys; none: it lets in everybody.
        tls: its remoting port has TLS by this.
        more_topics: rows of its table that are not in the store's.
    """

    def __init__(self, root: Path, push: Push | None = None) -> None:
        self.root = root
        self.config = {
            "brokerName": "small",
            "brokerRole": "ASYNC_MASTER",
            "mappedFileSizeCommitLog": str(open_directory(root).log_file_size),
            "mappedFileSizeConsumeQueue": str(open_directory(root).queue_file_size),
            "maxHashSlotNum": "500",
            "maxIndexNum": "400",
            "storePathRootDir": "/elsewhere",
            "timerWheelEnable": "false",
        }
        self.version = "V4_9_4"
        self.secrets: dict[str, str] = {}
        self.tls: ssl.SSLContext | None = None
        self.more_topics: dict[str, object] = {}
        self.reports: list[list[int]] = []
        self.queue_ends: dict[tuple[str, int], int] = {}
        reader = LogReader(open_directory(root))
        self.first, self.whole = int(reader.first), int(reader.end)
        self.end = self.whole
        reader.close()
        self.changed = threading.Condition()
        self.is_open = True
        self._push = push or push_all
        self._sockets: list[socket.socket] = []
        self._servers = [_served(self._slave), _served(self._client)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._servers[0].server_address[1]}"

    @property
    def remoting(self) -> str:
        return f"127.0.0.1:{self._servers[1].server_address[1]}"

    def grow(self, end: int) -> None:
        """The log goes on to ``end``."""
        with self.changed:
            self.end = end
            self.changed.notify_all()

    def bytes_from(self, position: int, size: int) -> bytes:
        """At most ``size`` bytes of the file that has ``position``."""
        file_size = int(self.config["mappedFileSizeCommitLog"])
        start = position - position % file_size
        upto = min(self.end, start + file_size, position + size)
        with (self.root / "commitlog" / file_name(start)).open("rb") as file:
            file.seek(position - start)
            return file.read(upto - position)

    def end_connections(self) -> None:
        """Break all of them, as a network does."""
        for one in self._sockets:
            with_closed(one)
        self._sockets.clear()

    def close(self) -> None:
        with self.changed:
            self.is_open = False
            self.changed.notify_all()
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self.end_connections()

    def _slave(self, connection: socket.socket) -> None:
        self._sockets.append(connection)
        heard: list[int] = []
        asked = _exactly(connection, 8)
        if asked is None:
            return
        heard.append(int.from_bytes(asked, "big"))
        self.reports.append(heard)
        hearing = threading.Thread(target=self._hear, args=(connection, heard), daemon=True)
        hearing.start()
        try:
            self._push(self, connection, heard[0])
        except OSError:
            return
        finally:
            with_closed(connection)
            hearing.join()

    def _hear(self, connection: socket.socket, heard: list[int]) -> None:
        while report := _exactly(connection, 8):
            with self.changed:
                heard.append(int.from_bytes(report, "big"))
                self.changed.notify_all()

    def _client(self, connection: socket.socket) -> None:
        self._sockets.append(connection)
        if self.tls is not None:
            try:
                connection = self.tls.wrap_socket(connection, server_side=True)
            except OSError:
                return
            self._sockets.append(connection)
        while size := _exactly(connection, 4):
            frame = _exactly(connection, int.from_bytes(size, "big"))
            if frame is None:
                return
            asked = decode_command(memoryview(frame))
            fields, body = self._answer(asked.code, asked.fields)
            secret = self.secrets.get(asked.fields.get(ACCESS_KEY, ""))
            if self.secrets and not (secret and is_signed(asked.fields, asked.body, secret)):
                reply = asked.reply(1, remark="no account of ours")
            else:
                reply = asked.reply(0 if body is not None else 1, fields=fields, body=body or b"")
            try:
                connection.sendall(b"".join(encode_command(reply)))
            except OSError:
                # Whoever asked has gone.
                return

    def _answer(self, code: int, fields: object) -> tuple[dict[str, str], bytes | None]:
        assert isinstance(fields, dict)
        if code == RequestCode.GET_BROKER_CONFIG:
            return {}, "".join(f"{key}={value}\n" for key, value in self.config.items()).encode()
        if code == RequestCode.GET_BROKER_RUNTIME_INFO:
            table = {
                "brokerVersionDesc": self.version,
                "commitLogMinOffset": str(self.first),
                "commitLogMaxOffset": str(self.end),
            }
            return {}, json.dumps({"table": table}).encode()
        if code == RequestCode.VIEW_MESSAGE_BY_ID:
            position = int(fields["offset"])
            size = int.from_bytes(self.bytes_from(position, 4), "big")
            return {}, self.bytes_from(position, size)
        if code == RequestCode.GET_MAX_OFFSET:
            queue = fields["topic"], int(fields["queueId"])
            return {"offset": str(self.queue_ends.get(queue, 0))}, b""
        file = {
            RequestCode.GET_ALL_TOPIC_CONFIG: "topics.json",
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "subscriptionGroup.json",
            RequestCode.GET_ALL_CONSUMER_OFFSET: "consumerOffset.json",
            RequestCode.GET_ALL_DELAY_OFFSET: "delayOffset.json",
        }.get(RequestCode(code), "")
        path = self.root / "config" / file
        if not file or not path.is_file():
            return {}, None
        document = dict(decode_document(path.read_bytes()))
        if code == RequestCode.GET_ALL_TOPIC_CONFIG:
            document["topicConfigTable"] |= self.more_topics  # type: ignore[operator]
        return {}, json.dumps(document).encode()


def push_all(master: SmallMaster, connection: socket.socket, position: int) -> None:
    """What a master sends: all that it has, and what comes."""
    if position == 0:
        file_size = int(master.config["mappedFileSizeCommitLog"])
        position = master.end - master.end % file_size
    while master.is_open:
        body = master.bytes_from(position, FRAME) if position < master.end else b""
        connection.sendall(HEADER.pack(position, len(body)) + body)
        position += len(body)
        if not body:
            with master.changed:
                master.changed.wait_for(
                    lambda at=position: master.end > at or not master.is_open,
                    1.0,  # type: ignore[misc]
                )


@contextmanager
def small_master(root: Path, push: Push | None = None) -> Iterator[SmallMaster]:
    """A master on the store ``root`` until the end of the block."""
    master = SmallMaster(root, push)
    try:
        yield master
    finally:
        master.close()


def with_closed(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _served(handle: Callable[[socket.socket], None]) -> socketserver.ThreadingTCPServer:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            handle(self.request)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    ).start()
    return server


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            part = connection.recv(size - len(data))
        except OSError:
            return None
        if not part:
            return None
        data += part
    return bytes(data)
