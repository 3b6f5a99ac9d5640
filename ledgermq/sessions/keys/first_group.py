"""First group: what ``first_access`` is to make for new hosts, with all of each one's settings."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.records.host_address import PORT_MAX
from ledgermq.model.config.host_texts import is_address
from ledgermq.model.config.settings import AckMode, ClusterState
from ledgermq.model.config.settings_rules import RULES
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys.first_access import (
    AccessWish,
    ClientPorts,
    NewNode,
    Tables,
    read_host,
)

HOST_COUNTS = (1, 3, 5)
"""Numbers of hosts that a group can be made of: with an even number of voters no more may be lost
than with one voter less."""

HOST_COUNTS_BESIDE_WITNESS = (2, 4)
"""Numbers of hosts beside a witness, with which they are an odd number of voters."""

FIRST_PORT = 10_920
PORTS = 4
"""Ports of a host in a row: for members, producers, consumers, and direct connections of
members."""

PORT_MIN = 1_024
"""The account of the service may not listen below."""


class GroupWish(NamedTuple):
    """What an operator wants.

    Attributes:
        hosts: names or addresses at which members and clients reach the hosts.
        name: of the group, and of the broker that it is to RocketMQ's clients.
        first_port: members'; producers', consumers' and that of members' direct connections are
            the three behind it.
        remoting_port: RocketMQ's clients'; None without them.
        data: the store's directory on each host.
        users: rights by user; without any the ports are open.
        admin_over_clients: admins may change topics, groups and users from anywhere.
        place: the folder of each host that its files are copied to.
        witness: one host more, which votes and holds no messages; None without one.
    """

    hosts: Sequence[str]
    name: str
    first_port: int
    remoting_port: int | None
    data: Path
    durability: AckMode
    users: Mapping[str, Mapping[str, object]]
    admin_over_clients: bool
    place: Path
    witness: str | None = None


class GroupPlan(NamedTuple):
    """What is to be made, and what an operator should know of it."""

    access: AccessWish
    warnings: tuple[str, ...]


def plan_group(wanted: GroupWish) -> GroupPlan:
    """Names, ports and settings of the members; nothing is made yet.

    Asks for the addresses of hosts that are given by name.

    Raises:
        ConfigError: it could not be a group, or not at these ports.
    """
    hosts = _hosts(wanted.hosts, wanted.witness)
    for key, value, option in (
        ("node.broker_name", wanted.name, "--name"),
        ("store.path_root_dir", wanted.data, "--data"),
    ):
        if not RULES[key].takes(value):
            raise ConfigError(f"must be {RULES[key].allowed}", value=str(value), setting=option)
    _check_ports(wanted)
    if wanted.admin_over_clients and not wanted.users:
        raise ConfigError(
            "without users everybody who reaches the ports would be an admin",
            setting="--admin-over-clients",
        )
    members = [
        NewNode(NodeId(f"n{number}"), host, is_witness=number == len(wanted.hosts))
        for number, host in enumerate(hosts)
    ]
    warnings: list[str] = []
    known: dict[str, str] = {}
    nodes = []
    for member in members:
        address = member.address if member.is_address else _resolved(member.address)
        if address is None and not member.is_witness:
            warnings.append(
                f"{member.address} has no address here that others could use: set node.broker_ip in"
                f" the settings of {member.name}"
            )
        elif address is not None and address in known:
            warnings.append(f"{member.address} is {known[address]} by its address here, {address}")
        elif address is not None:
            known[address] = member.address
        nodes.append(member._replace(settings=_settings(member, members, wanted, address)))
    ports = ClientPorts(
        wanted.first_port + 1, wanted.first_port + 2, wanted.remoting_port or ClientPorts().remoting
    )
    has_remoting = wanted.remoting_port is not None
    access = AccessWish(nodes, wanted.users, wanted.place, has_remoting, ports)
    return GroupPlan(access, tuple(warnings))


def _hosts(given: Sequence[str], witness: str | None) -> list[str]:
    """Hosts in one spelling, that of the witness last."""
    hosts: list[str] = []
    for text in (*given, *([] if witness is None else [witness])):
        host = read_host(text, setting="HOST")
        if host in hosts:
            raise ConfigError("a host stands twice: each is one member", value=text, setting="HOST")
        hosts.append(host)
    _check_count(len(given), has_witness=witness is not None)
    here = [host for host in hosts if _is_loopback(host)]
    if here and len(here) < len(hosts):
        raise ConfigError(
            "other hosts do not reach this one by such an address", value=here[0], setting="HOST"
        )
    return hosts


def _check_count(hosts: int, *, has_witness: bool) -> None:
    counts = HOST_COUNTS_BESIDE_WITNESS if has_witness else HOST_COUNTS
    if hosts in counts:
        return
    told = ", ".join(map(str, counts))
    if has_witness:
        reason = f"beside a witness without messages a group has one of {told} hosts"
    else:
        reason = (
            f"a group has an odd number of hosts, and here one of {told}: one more than an odd"
            " number survives no more losses; a third vote for two sites is --witness"
        )
    raise ConfigError(reason, value=hosts, setting="HOST")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_ports(wanted: GroupWish) -> None:
    own = range(wanted.first_port, wanted.first_port + PORTS)
    for ports, option in ((own, "--port"), ((wanted.remoting_port,), "--rocketmq-port")):
        for port in ports:
            if port is not None and not PORT_MIN <= port <= PORT_MAX:
                raise ConfigError(f"ports are {PORT_MIN} to {PORT_MAX}", value=port, setting=option)
    if wanted.remoting_port in own:
        raise ConfigError(
            f"members, producers and consumers have {own[0]} to {own[-1]} (--port)",
            value=wanted.remoting_port,
            setting="--rocketmq-port",
        )


def _resolved(name: str) -> str | None:
    """The first address of a name that other hosts could use."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    # Debian's /etc/hosts has the machine's own name as 127.0.1.1.
    addresses = sorted((str(entry[4][0]) for entry in found), key=lambda one: ":" in one)
    is_here = name == "localhost"
    usable = (one for one in addresses if is_address(one) and _is_loopback(one) == is_here)
    return next(usable, None)


def _settings(
    member: NewNode, members: Sequence[NewNode], wanted: GroupWish, address: str | None
) -> Tables:
    node: dict[str, object] = {
        "broker_name": wanted.name,
        "group": wanted.name,
        "self_id": str(member.name),
    }
    if len(members) > 1:
        # The others begin without a witness, which they take in when they are a group.
        known = [one for one in members if member.is_witness or not one.is_witness]
        node["peers"] = tuple(f"{one.name}-{one.host}:{wanted.first_port}" for one in known)
    if member.is_witness:
        node |= {"initial_cluster_state": ClusterState.EXISTING, "witness": True}
    elif address is not None:
        node["broker_ip"] = address
    if wanted.remoting_port is not None and not member.is_witness:
        node["listen_port"] = wanted.remoting_port
    told: dict[str, dict[str, object]] = {
        "node": node,
        "store": {"path_root_dir": wanted.data},
        "ack": {"mode": wanted.durability},
    }
    if len(members) > 1:
        told["raft"] = {"direct_port": wanted.first_port + PORTS - 1}
    if wanted.admin_over_clients and not member.is_witness:
        told["access"] = {"admin_over_clients": True}
    return told
