"""Addresses of the port for RocketMQ's clients, and whether systemd listens there."""

from __future__ import annotations

from ledgermq.model.config.settings import VIP_DISTANCE, ListenSection
from ledgermq.model.errors import ConfigError
from ledgermq.process.systemd.inherited_sockets import inherited_at, inherited_sockets

ANYWHERE = "0.0.0.0"  # noqa: S104 - bound when the operator has named no address
"""What ``*`` stands for."""

VIP_SETTING = "listen.vip_channel"

PortAddress = tuple[str, int]
"""Host and port."""


def listening_addresses(listen: ListenSection) -> list[PortAddress]:
    """The broker's port, the name server's and RocketMQ's second one for brokers, as far as they
    are wanted: all answer all codes.
    """
    return list(addresses_by_setting(listen).values())


def addresses_by_setting(listen: ListenSection) -> dict[str, PortAddress]:
    """The same, each by the setting that says so."""
    wanted = {"listen.remoting": listen.remoting, "listen.name_server": listen.name_server}
    found: dict[str, PortAddress] = {}
    for setting, text in wanted.items():
        if text is not None:
            host, _, port = text.rpartition(":")
            found[setting] = (ANYWHERE if host == "*" else host.strip("[]"), int(port))
    if listen.vip_channel and "listen.remoting" in found:
        host, number = found["listen.remoting"]
        others = (
            *(listen.name_server, listen.produce, listen.consume, listen.http),
            *(listen.grpc, listen.ha),
        )
        ports = {text.rpartition(":")[2] for text in others if text is not None}
        # What has been given to something else stays with it.
        if number > VIP_DISTANCE and str(number - VIP_DISTANCE) not in ports:
            found[VIP_SETTING] = (host, number - VIP_DISTANCE)
    return found


def check_inherited(listen: ListenSection) -> None:
    """Refuse sockets that systemd passed and the settings do not want.

    Raises:
        ConfigError: one listens elsewhere: clients would be let in, and nobody would answer.
    """
    expected = [inherited_at(host, port) for host, port in listening_addresses(listen)]
    for given in inherited_sockets():
        if given not in expected:
            raise ConfigError(
                "systemd listens for the node where its settings do not: let ListenStream= of the"
                " socket unit and listen.remoting name the same addresses",
                unit=given.name,
                listens_at=given.text,
                remoting=listen.remoting or "not set",
                name_server=listen.name_server or "not set",
            )
