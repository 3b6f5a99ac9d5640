"""A Python for Spark that connects before it imports, with the real PySpark and Spark's part here.

What Spark does is accept, look for its secret, and read the process's number; for the first two it
waits ten seconds each. PySpark's imports are held up until the test has seen these.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.pipeline.early_python import write_early_python
from tests.suite.patience import PATIENCE_S

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
SECRET = "secret"
HELD = """
import pkgutil, time
from pathlib import Path

Path(__file__).with_name("importing").touch()
while not Path(__file__).with_name("go").exists():
    time.sleep(0.01)
__path__ = pkgutil.extend_path(__path__, __name__)
"""
"""A package before the one that PySpark imports, whose place it takes until the test lets go."""


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """The folder of the package that holds imports up."""
    folder = tmp_path / "held" / "py4j"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(HELD)
    return folder


@pytest.fixture(params=["tcp", "unix"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    """Where Spark would wait."""
    if request.param == "tcp":
        listening = socket.create_server(("127.0.0.1", 0))
    else:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(tmp_path / "s"))
        listening.listen()
    listening.settimeout(PATIENCE_S)
    with listening:
        yield listening


def environment_of(listening: socket.socket, held: Path) -> dict[str, str]:
    paths = [str(held.parent), os.environ.get("PYTHONPATH", "")]
    common = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if listening.family == socket.AF_UNIX:
        return {**common, "PYTHON_WORKER_FACTORY_SOCK_PATH": listening.getsockname()}
    port = str(listening.getsockname()[1])
    return {
        **common,
        "PYTHON_WORKER_FACTORY_PORT": port,
        "PYTHON_WORKER_FACTORY_SECRET": SECRET,
    }


def read_text(connection: socket.socket) -> str:
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(size, socket.MSG_WAITALL).decode()


def test_spark_is_connected_while_python_still_imports(
    listening: socket.socket, held: Path, tmp_path: Path
) -> None:
    program = write_early_python(tmp_path / "python")
    with subprocess.Popen(
        [str(program), "-m", RUNNER], env=environment_of(listening, held), stderr=subprocess.PIPE
    ) as process:
        try:
            connection, _ = listening.accept()
            connection.settimeout(PATIENCE_S)
            if listening.family != socket.AF_UNIX:
                assert read_text(connection) == SECRET
                connection.sendall(struct.pack(">i", 2) + b"ok")
            (held / "go").touch()
            (number,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            # It is PySpark that speaks: of a Python of another version it wants to hear nothing.
            connection.sendall(struct.pack(">i", 3) + b"1.0")
            answer = connection.makefile("rb").read()
            connection.close()
        finally:
            (held / "go").touch()
            process.kill()

    assert (held / "importing").exists()
    assert number == process.pid
    assert b"PYTHON_VERSION_MISMATCH" in answer


def test_what_spark_does_not_wait_for_is_run_as_it_is(tmp_path: Path) -> None:
    program = write_early_python(tmp_path / "python")
    show = "import sys; print(sys.executable, sys.argv, sys.path[0])"
    ran = [
        subprocess.run([one, "-c", show, "word"], check=True, capture_output=True, text=True).stdout
        for one in (str(program), sys.executable)
    ]

    assert ran[0] == ran[1]
    assert ran[0].startswith(sys.executable)
