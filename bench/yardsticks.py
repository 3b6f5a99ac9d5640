"""What the disk and the loopback interface give a plain program, to measure ourselves against."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from multiprocessing.connection import Connection
from pathlib import Path

CHUNK = 1024 * 1024
PATIENCE_S = 60.0


def disk_mb_per_s(directory: Path, size: int) -> float:
    """MB/s of a sequential write of ``size`` bytes into a new file, and its fsync at the end."""
    chunk = os.urandom(CHUNK)
    path = directory / "yardstick"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        begin = time.perf_counter()
        done = 0
        while done < size:
            done += os.write(file, chunk)
        os.fsync(file)
        return done / (time.perf_counter() - begin) / 1e6
    finally:
        os.close(file)
        path.unlink()


def loopback_mb_per_s(size: int) -> float:
    """MB/s of ``size`` bytes over one TCP connection on loopback, from process to process."""
    context = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        ours, theirs = context.Pipe()
        source = context.Process(
            target=_send, args=(server.getsockname()[1], size, theirs), daemon=True
        )
        source.start()
        connection, _ = server.accept()
        with connection:
            connection.settimeout(PATIENCE_S)
            buffer = bytearray(CHUNK)
            ours.send("go")
            begin = time.perf_counter()
            done = 0
            while count := connection.recv_into(buffer):
                done += count
            took_s = time.perf_counter() - begin
        source.join(PATIENCE_S)
    assert done == size, done
    return done / took_s / 1e6


def _send(port: int, size: int, told: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    chunk = bytes(CHUNK)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        told.recv()
        done = 0
        while done < size:
            part = chunk[: size - done]
            connection.sendall(part)
            done += len(part)
