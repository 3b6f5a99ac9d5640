"""Forked node: its supervisor is a child of this process, which has imported all that it needs."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence

import setproctitle

# The supervisor itself is imported by the command that is forked: it costs time here once.
import ledgermq.daemon.supervisor  # noqa: F401
from ledgermq.cli.main import main
from ledgermq.cli.node.local_node import LocalNode, SupervisorProcess
from ledgermq.daemon.children import ProcessTable
from ledgermq.ipc.cursor_page import Role
from ledgermq.model.exit_status import EXIT_BUG
from ledgermq.process.child_process import adopt_orphans, die_with

WEB = "ledgermq.observer"
"""What the distribution ``ledgermq-web`` brings."""


class ForkedProcess:
    """What is used of ``subprocess.Popen``, for a child without a program of its own."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._status: int | None = None
        # Nobody else waits for it, so that the number is this process's until ``poll`` has asked.
        self.handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit status, or the signal's number below zero; None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
                os.close(self.handle)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended.

        Raises:
            TimeoutExpired: of ``subprocess``; it has not ended within ``timeout`` seconds.
        """
        if self.poll() is None:
            ended = select.poll()
            ended.register(self.handle, select.POLLIN)
            if not ended.poll(None if timeout is None else timeout * 1_000):
                raise subprocess.TimeoutExpired(f"node {self._pid}", timeout or 0)
        status = self.poll()
        assert status is not None
        return status

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM, unless it has ended."""
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self._pid, number)


class ForkedNode(LocalNode):
    """A node that dies with this process, which has one thread and no ZeroMQ context."""

    def launch(self) -> None:
        # A signal waits until the child has handlers of its own, and this process knows of it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            super().launch()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _begin(self, words: Sequence[str], log: int) -> SupervisorProcess:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = EXIT_BUG
            try:
                _become(parent, log)
                status = main(words)
            finally:
                sys.stderr.flush()
                os._exit(status)
        return ForkedProcess(pid)


_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def import_node() -> bool:
    """Import the processes of a node, once, before any is forked; whether one may have HTTP.

    Nothing of a node outlives this process from now on, and it can wait for all of them.
    """
    # The place for a process's name is found by its first environment, which the next lines change.
    setproctitle.getproctitle()
    adopt_orphans()
    ProcessTable.load([Role.RAFT, Role.WRITER, Role.DISPATCHER, Role.BROKER])
    try:
        ProcessTable.load([Role.OBSERVER])
        has_web = True
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(WEB):
            raise
        has_web = False
    # What is imported is all in use: no collector needs to look through it in each that is forked.
    gc.freeze()
    return has_web


def wait_for_orphans() -> None:
    """Return when no process is left of nodes whose supervisors have ended."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def _become(parent: int, log: int) -> None:
    die_with(parent)
    # A terminal's Ctrl-C, or its end, is for the parent.
    os.setpgid(0, 0)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
