"""Starts programs as ``python COMMAND`` does, but forked from a process that has imported a node.

Two thirds of what a start costs is importing the same modules again, so each pytest worker has one
process that imported them, and forks. What runs then is the program's own, from its ``__main__``
on; at its end its memory is left to the kernel. Who needs an interpreter of its own (its options,
other libraries, descriptors, a program before it) is executed; with ``LEDGERMQ_EXEC_NODES=1``, as
in ``make check-all``, all are.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.suite.patience import PATIENCE_S

SOURCES = Path(__file__).resolve().parents[2]
SERVE = ["-m", "ledgermq.cli.main", "serve", "--config"]
"""Words before the file with the settings."""

ORDER_SIZE_MAX = 1_048_576
_AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_")
"""Variables that an interpreter and its libraries read when they are started, and not again; what
``PYTHONPATH`` names is added to the path of what is forked."""


class ForkedProcess:
    """What the tests use of ``subprocess.Popen``, for a process that is a child of the template."""

    def __init__(self, template: Template, pid: int, command: Sequence[str]) -> None:
        self.pid = pid
        self.args = [sys.executable, *command]
        self.returncode: int | None = None
        self._template = template
        self._handle = -1
        # Nobody else reaps it, so that the number is this process's until ``poll`` has asked.
        self._handle = os.pidfd_open(pid)

    def __del__(self) -> None:
        self._close()

    def poll(self) -> int | None:
        """The exit status, or the signal's number below zero; None while it runs."""
        if self.returncode is None and self._has_ended(0):
            self.returncode = self._template.reap(self.pid)
            self._close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended."""
        if self.returncode is None and not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(f"forked node {self.pid}", timeout or 0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1_000))

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


Process = subprocess.Popen[bytes] | ForkedProcess


class Template:
    """The process that has imported a node, and forks; one for each process of pytest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._environment = _read_at_start({**os.environ, "PYTHONPATH": str(SOURCES)})
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": str(SOURCES)},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )  # fmt: skip

    def can_fork(self, environment: Mapping[str, str]) -> bool:
        """Whether an interpreter that is started with ``environment`` would be like this one."""
        return _read_at_start(environment) == self._environment

    def fork(
        self, command: Sequence[str], *, environment: Mapping[str, str], streams: Sequence[int]
    ) -> ForkedProcess:
        """Start ``python COMMAND`` with three descriptors: input, output, errors."""
        order = {
            "command": command,
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "umask": _umask(),
        }
        return ForkedProcess(self, self._ask(order, *streams), command)

    def reap(self, pid: int) -> int:
        """The exit status of a process that has ended."""
        return self._ask({"reap": pid})

    def close(self) -> None:
        """It ends when nobody can ask any more; what it has forked goes on."""
        self._socket.close()
        self._process.wait()

    def _ask(self, order: dict[str, Any], *descriptors: int) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(order).encode()], descriptors)
            answer = self._socket.recv(64)
        assert answer, f"the template of nodes has ended with {self._process.wait()}"
        return int(answer)


_templates: dict[int, Template] = {}


def _template() -> Template:
    """That of this process; a fork of it asks one of its own."""
    pid = os.getpid()
    if pid not in _templates:
        _templates[pid] = Template()
        atexit.register(_templates[pid].close)
    return _templates[pid]


def start_node(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: int,
    errors: int | None = None,
    given: int | None = None,
    options: Sequence[str] = (),
    prefix: Sequence[str] = (),
    passes: Sequence[int] = (),
) -> Process:
    """Start ``PREFIX python OPTIONS COMMAND``.

    Args:
        command: ``-m``, a module and its words; or a script and its words; or ``-c`` and code.
        output: a descriptor for what it prints.
        errors: one for its errors; ``output`` if left out.
        given: one to read from; nothing if left out.
        passes: descriptors that it gets, with the same numbers.
    """
    with open(os.devnull, "rb") as nothing:
        streams = (
            nothing.fileno() if given is None else given,
            output,
            output if errors is None else errors,
        )
        if os.environ.get("LEDGERMQ_EXEC_NODES") != "1" and not (options or prefix or passes):
            template = _template()
            if template.can_fork(environment):
                return template.fork(command, environment=environment, streams=streams)
        return subprocess.Popen(
            [*prefix, sys.executable, *options, *command],
            env=dict(environment), stdin=streams[0], stdout=streams[1], stderr=streams[2],
            pass_fds=tuple(passes),
        )  # fmt: skip


def run_program(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    given: bytes = b"",
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Start ``python COMMAND``, and wait until it has ended; what it printed and complained of."""
    with (
        tempfile.TemporaryFile() as source,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        source.write(given)
        source.seek(0)
        process = start_node(
            command, environment=environment,
            output=output.fileno(), errors=errors.fileno(), given=source.fileno(),
        )  # fmt: skip
        try:
            status = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, status, output.read(), errors.read())


def run_command(*words: object) -> subprocess.CompletedProcess[str]:
    """Run ``ledgermq`` with these words."""
    return run_python("-m", "ledgermq.cli.main", *words)


def run_python(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a module or a script with its words, until it has ended by itself."""
    done = run_program(
        [str(word) for word in words],
        environment={**os.environ, "PYTHONPATH": str(SOURCES)},
        timeout_s=PATIENCE_S,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def _umask() -> int:
    """That of this process, which no call tells without changing it."""
    return int(Path("/proc/self/status").read_text().partition("Umask:")[2].split()[0], 8)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in environment.items()
        if name.startswith(_AT_START) and name != "PYTHONPATH"
    }


def serve(orders: socket.socket) -> None:
    """Be the template: returns when nobody can ask any more, and in each process that is forked."""
    # Imported here: who starts nodes needs nothing of them.
    import gc

    import setproctitle

    import ledgermq.daemon.supervisor
    from ledgermq.cli.main import whole_parser
    from ledgermq.daemon.children import ProcessTable

    del ledgermq
    ProcessTable.load()
    # Each command imports its own module, and with it what it says and reads.
    whole_parser()
    # The place for a process's name is found by its first environment, which each order changes.
    setproctitle.getproctitle()
    # What is imported is all in use: no collector needs to look through it in each that is forked.
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, ORDER_SIZE_MAX, 3)
        if not data:
            return
        order = json.loads(data)
        if "reap" in order:
            _, status = os.waitpid(order["reap"], 0)
            orders.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            orders.close()
            _become(order, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        orders.send(str(pid).encode())


def _become(order: dict[str, Any], streams: Sequence[int]) -> None:
    """Run the command as the interpreter would; it ends with ``SystemExit``, or returns."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    os.umask(order["umask"])
    for folder in os.environ.get("PYTHONPATH", "").split(":"):
        if folder and folder not in sys.path:
            sys.path.append(folder)
    try:
        _run(order)
    except SystemExit as ending:
        if not isinstance(ending.code, int | None):
            raise
        _end(ending.code or 0)
    else:
        _end(0)


def _run(order: dict[str, Any]) -> None:
    first, *words = order["command"]
    if first == "-c":
        sys.argv = [first, *words[1:]]
        sys.path.insert(0, "")
        exec(words[0], sys.modules["__main__"].__dict__)
    elif first == "-m":
        module, *words = words
        sys.argv = [module, *words]
        sys.path.insert(0, order["folder"])
        # The template may have imported it; who runs it has not.
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *words]
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")


def _end(status: int) -> NoReturn:
    """End as an interpreter does, but for its memory, which is left to the kernel: to take apart
    all that was imported is three quarters of what a short command costs."""
    # What waits for threads, and for what they have registered, is no public name.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
