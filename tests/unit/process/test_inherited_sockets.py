"""What systemd passes is taken over once, told of, and duplicated for each who serves it."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.process.systemd.inherited_sockets import (
    InheritedSocket,
    inherited_at,
    inherited_sockets,
    listener_at,
    take_inherited,
)
from tests.suite.patience import PATIENCE_S

FIRST = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 10
"""Nobody else of a test process has descriptors from here on: the lowest that is free is given."""


def variables(count: int, names: str = "", pid: int | None = None) -> dict[str, str]:
    return {
        "LISTEN_PID": str(os.getpid() if pid is None else pid),
        "LISTEN_FDS": str(count),
        "LISTEN_FDNAMES": names,
        "PATH": "/bin",
    }


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    take_inherited({})
    for fd in range(FIRST, FIRST + 3):
        try:
            os.close(fd)
        except OSError:
            continue


def passed(number: int, sock: socket.socket) -> int:
    """Have ``sock`` where systemd would put it; its port."""
    os.dup2(sock.fileno(), FIRST + number)
    return int(sock.getsockname()[1])


def test_sockets_are_taken_with_their_names_and_no_variable_is_left() -> None:
    environment = variables(2, "a.socket:b.socket")
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as first,
        closing(socket.create_server(("::1", 0), family=socket.AF_INET6)) as second,
    ):
        ports = passed(0, first), passed(1, second)
        taken = take_inherited(environment, first_fd=FIRST)

    assert taken == inherited_sockets()
    assert taken == (
        InheritedSocket(FIRST, "a.socket", "127.0.0.1", ports[0]),
        InheritedSocket(FIRST + 1, "b.socket", "::1", ports[1]),
    )
    assert [one.text for one in taken] == [f"127.0.0.1:{ports[0]}", f"[::1]:{ports[1]}"]
    assert environment == {"PATH": "/bin"}
    assert not any(os.get_inheritable(one.fd) for one in taken)


def test_sockets_for_another_process_are_left_alone() -> None:
    environment = variables(1, "a.socket", pid=1)

    assert take_inherited(environment, first_fd=FIRST) == ()
    assert environment == {"PATH": "/bin"}


def test_an_address_is_found_however_it_is_written() -> None:
    with closing(socket.create_server(("::1", 0), family=socket.AF_INET6)) as server:
        port = passed(0, server)
        (taken,) = take_inherited(variables(1), first_fd=FIRST)

    assert taken.name == "unknown"
    assert inherited_at("0:0::1", port) == taken
    assert inherited_at("::1", port + 1) is None
    assert inherited_at("127.0.0.1", port) is None


def test_who_closes_a_duplicate_leaves_the_socket_and_its_queue_to_the_next() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = passed(0, server)
    take_inherited(variables(1), first_fd=FIRST)
    first = listener_at("localhost", port)
    assert first is not None
    first.close()
    # Nobody serves it now, as in a restart: who connects waits.
    with closing(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)) as client:
        second = listener_at("127.0.0.1", port)
        assert second is not None
        with closing(second), closing(second.accept()[0]) as accepted:
            assert accepted.getpeername() == client.getsockname()


def test_what_is_no_listening_tcp_socket_is_refused_and_named() -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as datagrams:
        passed(0, datagrams)
    with pytest.raises(ConfigError, match="no tcp socket that listens") as refused:
        take_inherited(variables(1, "a.socket"), first_fd=FIRST)
    with closing(socket.socket()) as silent:
        passed(0, silent)
    with pytest.raises(ConfigError, match="no tcp socket that listens"):
        take_inherited(variables(1), first_fd=FIRST)
    os.dup2(0, FIRST)
    with pytest.raises(ConfigError, match="is no socket"):
        take_inherited(variables(1), first_fd=FIRST)

    assert refused.value.details["unit"] == "a.socket"
    assert refused.value.details["type"] == "SOCK_DGRAM"
