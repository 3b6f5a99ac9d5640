"""Sockets of ZeroMQ are looked at also where the process has no descriptor left."""

from __future__ import annotations

import os
import resource
import socket
from contextlib import ExitStack

from ledgermq.sessions.socket_watch import _opened


def test_a_connection_is_seen_and_ended_when_no_descriptor_is_left() -> None:
    near, far = socket.socketpair()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as cleanup:
        cleanup.callback(near.close)
        cleanup.callback(far.close)
        cleanup.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        lowest = os.dup(near.fileno())
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        with _opened(near.fileno()) as seen:
            assert seen is not None
            seen.shutdown(socket.SHUT_RDWR)
        with _opened(lowest + 1) as nothing:
            assert nothing is None

        assert far.recv(1) == b""
        # It is still who had it that closes it.
        assert os.fstat(near.fileno()).st_ino
