"""Whose sockets the port takes, and what is said when they are the wrong ones."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.gateway.transport.listening import open_listeners
from ledgermq.model.config.settings import ListenSection
from ledgermq.model.errors import ConfigError
from ledgermq.process.systemd.inherited_sockets import take_inherited
from ledgermq.process.systemd.port_addresses import (
    VIP_SETTING,
    addresses_by_setting,
    check_inherited,
    listening_addresses,
)
from tests.suite.patience import PATIENCE_S


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def passed() -> Iterator[str]:
    """Address of a socket that systemd has passed."""
    with closing(socket.create_server(("127.0.0.1", 0))) as ours:
        fd = os.dup(ours.fileno())
        environment = {
            "LISTEN_PID": str(os.getpid()),
            "LISTEN_FDS": "1",
            "LISTEN_FDNAMES": "ledgermq-remoting.socket",
        }
        take_inherited(environment, first_fd=fd)
        yield f"127.0.0.1:{ours.getsockname()[1]}"
        take_inherited({})
        os.close(fd)


def test_the_star_stands_for_all_addresses_and_both_ports_are_wanted() -> None:
    listen = ListenSection(remoting="*:10911", name_server="[::1]:9876")

    both = [("0.0.0.0", 10_911), ("::1", 9_876)]
    assert listening_addresses(listen) == [*both, ("0.0.0.0", 10_909)]
    assert listening_addresses(replace(listen, vip_channel=False)) == both


@pytest.mark.parametrize(
    "taken",
    [{"name_server": "*:10909"}, {"produce": "tcp://*:10909"}, {"consume": "tcp://*:10909"}],
)
def test_a_second_port_that_was_given_to_something_else_stays_with_it(
    taken: dict[str, str],
) -> None:
    listen = ListenSection(remoting="*:10911", **taken)  # type: ignore[arg-type]

    assert VIP_SETTING not in addresses_by_setting(listen)
    assert VIP_SETTING not in addresses_by_setting(ListenSection(name_server="*:9876"))
    assert VIP_SETTING not in addresses_by_setting(ListenSection(remoting="*:2"))


def test_an_address_that_is_taken_is_named_and_what_was_opened_is_closed() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        number = taken.getsockname()[1]
        before = open_descriptors()
        with pytest.raises(ConfigError, match="cannot be listened at") as refused:
            open_listeners([("127.0.0.1", 0), ("127.0.0.1", number)])
        after = open_descriptors()

    assert refused.value.details["address"] == f"127.0.0.1:{number}"
    assert after == before


def test_a_socket_of_systemd_is_served_beside_one_of_our_own(passed: str) -> None:
    inherited = listening_addresses(ListenSection(remoting=passed))[0]
    with ExitStack() as opened:
        listeners = open_listeners([("127.0.0.1", 0), inherited])
        for listener in listeners:
            opened.enter_context(closing(listener))
        client = opened.enter_context(
            closing(socket.create_connection(inherited, timeout=PATIENCE_S))
        )
        accepted = opened.enter_context(closing(listeners[1].accept()[0]))

        assert listeners[1].getsockname() == inherited
        assert accepted.getpeername() == client.getsockname()
        assert not listeners[1].getblocking()


def test_what_systemd_passes_has_to_be_what_the_settings_want(passed: str) -> None:
    check_inherited(ListenSection(remoting=passed))
    check_inherited(ListenSection(remoting="127.0.0.1:1", name_server=passed))
    with pytest.raises(ConfigError, match="where its settings do not") as elsewhere:
        check_inherited(ListenSection(remoting="127.0.0.1:1"))
    with pytest.raises(ConfigError) as nowhere:
        check_inherited(ListenSection())

    assert elsewhere.value.details["unit"] == "ledgermq-remoting.socket"
    assert elsewhere.value.details["listens_at"] == passed
    assert elsewhere.value.details["remoting"] == "127.0.0.1:1"
    assert nowhere.value.details["remoting"] == "not set"


def test_a_node_that_was_passed_nothing_opens_its_ports_itself() -> None:
    check_inherited(ListenSection(remoting="127.0.0.1:1"))
    (listener,) = open_listeners([("127.0.0.1", 0)])
    with closing(listener):
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


def test_processes_of_a_node_share_an_address_and_others_do_not() -> None:
    (first,) = open_listeners([("127.0.0.1", 0)], are_shared=True)
    with closing(first):
        address = ("127.0.0.1", first.getsockname()[1])
        (second,) = open_listeners([address], are_shared=True)
        shared = second.getsockname()
        with closing(second), pytest.raises(ConfigError, match="cannot be listened at"):
            open_listeners([address])

        assert shared == first.getsockname()
