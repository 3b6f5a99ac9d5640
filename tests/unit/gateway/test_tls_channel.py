"""TLS at the port: beside clients in clear, or alone; what is no TLS ends its own connection."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from ledgermq.gateway.transport.remoting_sockets import RemotingLimits
from ledgermq.gateway.transport.tls_channel import make_context
from ledgermq.model.config.settings import RemotingSection, TlsMode
from ledgermq.model.errors import ConfigError
from ledgermq.remoting.command import Command
from tests.certificates import make_certificate
from tests.suite.patience import PATIENCE_S
from tests.unit.gateway.test_remoting_sockets import (
    Port,
    is_closed,
    received,
    sent,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def make_port(files: tuple[Path, Path]) -> Iterator[Callable[..., Port]]:
    made: list[Port] = []

    def make(*, only_tls: bool = False, with_tls: bool = True) -> Port:
        port = Port(RemotingLimits(only_tls=only_tls))
        if with_tls:
            port.sockets.tls = make_context(settings(*files))
        made.append(port)
        return port

    yield make
    for port in made:
        port.close()


def settings(certificate: Path | None, key: Path | None) -> RemotingSection:
    return RemotingSection(tls_certificate_file=certificate, tls_key_file=key)


def served(port: Port, act: Callable[[], Any]) -> Any:
    """What ``act``, a client's, comes to, while the port goes on."""
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(act)
        while not running.done():
            port.turn()
            wait([running], timeout=0.01)
        return running.result()


def shaken(port: Port, certificate: Path, version: ssl.TLSVersion) -> ssl.SSLSocket:
    """A client that has shaken hands with the port."""
    context = ssl.create_default_context(cafile=str(certificate))
    context.minimum_version = context.maximum_version = version
    raw = socket.create_connection(port.sockets.addresses[0], timeout=PATIENCE_S)
    made: ssl.SSLSocket = served(
        port, lambda: context.wrap_socket(raw, server_hostname="127.0.0.1")
    )
    return made


@pytest.mark.slow
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_with_tls_and_in_clear_are_served_at_the_same_port(
    make_port: Callable[..., Port], files: tuple[Path, Path], version: ssl.TLSVersion
) -> None:
    port = make_port()
    with shaken(port, files[0], version) as sealed:
        clear = port.connect()
        clear.sendall(sent(1, b"in clear"))
        sealed.sendall(sent(2, b"x" * 100_000) + sent(3))
        port.until(lambda: len(port.arrived) == 3)
        large = b"y" * 1_000_000
        for connection, command in port.arrived:
            port.sockets.send(connection, command.reply(body=large))
        replies = served(port, lambda: [received(one) for one in (sealed, sealed, clear)])

    assert {command.opaque for _, command in port.arrived} == {1, 2, 3}
    assert [reply.opaque for reply in replies] == [2, 3, 1]
    assert all(bytes(reply.body) == large for reply in replies)


def test_where_there_is_no_certificate_a_handshake_ends_its_connection(
    make_port: Callable[..., Port],
) -> None:
    port = make_port(with_tls=False)
    good, bad = port.connect(), port.connect()
    bad.sendall(b"\x16\x03\x01\x00\x05hello")
    good.sendall(sent(1))
    port.until(lambda: len(port.arrived) == 1 and port.sockets.count == 1)

    assert is_closed(bad)
    port.sockets.send(port.arrived[0].connection, Command(0, 1, flag=1))
    port.sockets.flush()
    assert received(good).opaque == 1


def test_where_tls_is_enforced_a_client_in_clear_is_closed(make_port: Callable[..., Port]) -> None:
    port = make_port(only_tls=True)
    client = port.connect()
    client.sendall(sent(1))
    port.until(lambda: bool(port.sockets.take_closed()))

    assert is_closed(client)
    assert port.arrived == []


def test_what_only_looks_like_a_handshake_ends_its_connection(
    make_port: Callable[..., Port],
) -> None:
    port = make_port()
    client = port.connect()
    client.sendall(b"\x16\x03\x01\x00\x20" + b"\xff" * 64)
    port.until(lambda: bool(port.sockets.take_closed()))

    assert port.arrived == []
    client.close()


def test_files_that_cannot_serve_are_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, key = files
    broken = tmp_path / "broken.pem"
    broken.write_text("no PEM")

    with pytest.raises(ConfigError, match="not read") as missing:
        make_context(settings(certificate, tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="do not fit"):
        make_context(settings(certificate, broken))
    disabled = RemotingSection(
        tls_certificate_file=certificate, tls_key_file=key, tls_mode=TlsMode.DISABLED
    )

    assert missing.value.details["setting"] == "remoting.tls_key_file"
    assert make_context(settings(None, None)) is None
    assert make_context(disabled) is None
