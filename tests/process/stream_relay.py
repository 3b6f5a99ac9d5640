"""A relay before a writer's stream socket: what the writer answers can be lost on the way."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.suite.patience import PATIENCE_S
from tests.suite.space import short_folder


class StreamRelay:
    """A runtime directory whose clients reach the writer of another one, as long as they may.

    Attributes:
        folder: the directory, for clients.
        swallows: what the writer says is lost.
    """

    def __init__(self, runtime: Path) -> None:
        """Nobody is connected yet."""
        self.folder = Path(tempfile.mkdtemp(prefix="lmq-", dir=short_folder()))
        self.swallows = False
        self._passed = 0
        self._may_pass = threading.Event()
        self._may_pass.set()
        self._writer = runtime / "produce.sock"
        (self.folder / "consume").symlink_to(runtime / "consume")
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(self.folder / "produce.sock"))
        self._server.listen()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self.go_on()
        self.cut()
        shutil.rmtree(self.folder)

    def hold(self, passed: int = 0) -> None:
        """Pass on so many bytes of what the writer says next, and the rest when it may go on."""
        self._passed = passed
        self._may_pass.clear()

    def go_on(self) -> None:
        """Hold nothing back any more."""
        self._may_pass.set()

    def cut(self) -> None:
        """End all connections; the next ones lose nothing."""
        self.swallows = False
        ended, self._open = self._open, []
        for one in ended:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                writer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                writer.connect(str(self._writer))
                self._open += [client, writer]
                for ends in ((client, writer, False), (writer, client, True)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while content := source.recv(65_536):
                if is_answer and self.swallows:
                    continue
                if is_answer and not self._may_pass.is_set():
                    target.sendall(content[: self._passed])
                    content = content[self._passed :]
                    assert self._may_pass.wait(PATIENCE_S)
                target.sendall(content)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
