"""Python for Spark that connects first and imports then: Spark waits ten seconds to be spoken to.

    python -m ledgermq.pipeline.early_python /usr/local/bin/spark-python
    PYSPARK_PYTHON=/usr/local/bin/spark-python spark-submit …

writes a program that is to be ``PYSPARK_PYTHON``. For each stream that reads a Python source Spark
starts an interpreter of its own, not by its daemon, and ends the query when that has not connected
within ten seconds, a constant of ``PythonWorkerFactory``, and over TCP said its secret within ten
more, one of ``SocketAuthHelper``. Nearly all of what passes until then are PySpark's imports, and
behind it nobody looks at a clock. What is no such
interpreter is run as it is. This file is run by its path, and imports only what is needed then.
"""

from __future__ import annotations

import io
import os
import runpy
import shlex
import socket
import struct
import sys
from pathlib import Path

_PORT, _PATH = "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SOCK_PATH"
"""Variables in the environment of interpreters that Spark starts without its daemon."""

_WORD = "PYTHON_WORKER_FACTORY_SECRET"
"""What is said over TCP, and nothing over a Unix socket."""

_WELCOME = struct.pack(">i", 2) + b"ok"

_CONNECT = "local_connect_and_auth"
"""The function of ``pyspark.util`` by which they connect."""


def write_early_python(path: Path) -> Path:
    """Write the program, which runs this interpreter; its path, for ``PYSPARK_PYTHON``.

    Raises:
        OSError: it cannot be written.
    """
    interpreter, here = shlex.quote(sys.executable), shlex.quote(str(Path(__file__).resolve()))
    # -P: neither this folder nor where Spark runs is searched for modules.
    path.write_text(f'#!/bin/sh\nexec {interpreter} -P {here} "$@"\n')
    path.chmod(0o755)
    return path


def _run(words: list[str]) -> None:
    """Be the interpreter that was asked for."""
    is_module = len(words) == 2 and words[0] == "-m"
    if not is_module or not (_PORT in os.environ or _PATH in os.environ):
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - what Spark asked for
    connection = _connected()
    # As ``python -m`` has it.
    sys.path.insert(0, str(Path.cwd()))
    _hand_over(connection)
    sys.argv[:] = words[1:]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)


def _connected() -> socket.socket:
    """A connection that Spark has taken for that of its worker."""
    timeout_s = int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15"))
    if (path := os.environ.get(_PATH)) is not None:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(timeout_s)
        made.connect(path)
        return made
    is_ipv6 = os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true"
    place = "::1" if is_ipv6 else "127.0.0.1", int(os.environ[_PORT])
    made = socket.create_connection(place, timeout_s)
    secret = os.environ[_WORD].encode()
    made.sendall(struct.pack(">i", len(secret)) + secret)
    answer = b""
    while len(answer) < len(_WELCOME) and (part := made.recv(len(_WELCOME) - len(answer))):
        answer += part
    if answer != _WELCOME:
        raise SystemExit(f"Spark does not take its own secret: {answer!r}")
    return made


def _hand_over(connection: socket.socket) -> None:
    """Have PySpark take this connection where it would make one.

    Raises:
        AttributeError: this PySpark connects otherwise; the query ends, as it would for a Python
            that cannot start.
    """
    # The connection is there by now: it does not wait for this import, which takes its time.
    from pyspark import util, worker_util

    def taken(_place: str | int, _secret: str | None) -> tuple[io.IOBase, socket.socket]:
        size = int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))
        return connection.makefile("rwb", size), connection

    for module in (util, worker_util):
        getattr(module, _CONNECT)
        setattr(module, _CONNECT, taken)


if __name__ == "__main__":
    if __spec__ is None:
        _run(sys.argv[1:])
    elif len(sys.argv) == 2:
        print(write_early_python(Path(sys.argv[1])))
    else:
        raise SystemExit("usage: python -m ledgermq.pipeline.early_python FILE")
