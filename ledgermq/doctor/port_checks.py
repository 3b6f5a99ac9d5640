"""Port checks: those of the settings are free, or the node's own."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from ledgermq.doctor.finding import Diagnosis, fail, ok, warn
from ledgermq.doctor.subject import Subject
from ledgermq.members.peer_addresses import parse_peer
from ledgermq.model.config.settings_rules import HTTP_UNIX
from ledgermq.model.errors import LedgerError
from ledgermq.process.systemd.port_addresses import VIP_SETTING, addresses_by_setting
from ledgermq.process.systemd.systemd_tools import listening_units

SOCKET_UNITS = "ledgermq-remoting"
"""How the names of the package's socket units begin."""

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RESERVED = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")


class Endpoint(NamedTuple):
    """A port that the node listens at."""

    setting: str
    host: str
    port: int


def port_checks(subject: Subject) -> Iterator[Diagnosis]:
    """A finding a port, and one about the ports that the system gives away itself."""
    endpoints = list(endpoints_of(subject))
    for endpoint in endpoints:
        yield _port(subject, endpoint)
    if endpoints:
        yield _given_away(endpoints)


def endpoints_of(subject: Subject) -> Iterator[Endpoint]:
    """The tcp ports that the settings have the node listen at."""
    node, listen = subject.settings.node, subject.settings.listen
    for text in node.peers:
        name, address = parse_peer(text)
        if name == node.self_id:
            yield Endpoint("node.peers", address.host.strip("[]"), address.port)
    if node.witness:
        # It listens to members alone, whatever the settings of a group's nodes have in common.
        return
    for setting, endpoint in (("produce", listen.produce), ("consume", listen.consume)):
        if endpoint is not None:
            host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
            yield Endpoint(f"listen.{setting}", host.strip("[]"), int(port))
    if listen.http not in (None, HTTP_UNIX):
        host, _, port = listen.http.rpartition(":")
        yield Endpoint("listen.http", host.strip("[]"), int(port))
    for setting, (host, number) in addresses_by_setting(listen).items():
        yield Endpoint(setting, host, number)


def _port(subject: Subject, endpoint: Endpoint) -> Diagnosis:
    check = f"ports.{endpoint.setting}"
    limit = "this node's" if subject.pids else "free"
    holders = listeners(endpoint.port)
    own = set(subject.pids)
    unit = _unit_at(endpoint)
    if holders & own:
        whose = f", and {unit} holds it" if unit else ""
        return ok(check, f"port {endpoint.port} is this node's{whose}", limit=limit)
    if unit and subject.status is None:
        return ok(check, f"port {endpoint.port} is held for the node by {unit}", limit=limit)
    if holders or (not subject.pids and not _is_free(endpoint)):
        who = ", ".join(_program(pid) for pid in sorted(holders)) or "a program of another account"
        return _taken(check, endpoint, who, limit)
    if subject.status is None:
        return ok(check, f"port {endpoint.port} is free", limit=limit)
    if subject.status["state"] != "ready":
        return warn(
            check,
            f"nobody listens at port {endpoint.port}; the node is not ready",
            limit=limit,
            change=f"wait for {subject.status['waits_for'] or 'it: see node.state'}",
        )
    return warn(
        check,
        f"no process of this node is seen at port {endpoint.port}",
        limit=limit,
        change="run doctor as root or as the node's account; else restart the node: its settings"
        " are others",
    )


def _taken(check: str, endpoint: Endpoint, who: str, limit: str) -> Diagnosis:
    finding = f"port {endpoint.port} is taken by {who}"
    if endpoint.setting == VIP_SETTING:
        return warn(
            check,
            f"{finding}: RocketMQ's clients with vipChannelEnabled do not find this node",
            limit=limit,
            change=f"stop that program, or set {VIP_SETTING} to false",
        )
    return fail(
        check,
        finding,
        limit=limit,
        change=f"stop that program, or take another port in {endpoint.setting} (of members:"
        " on all of them)",
    )


def _unit_at(endpoint: Endpoint) -> str:
    """Name of our socket unit by which systemd holds the port; empty where none does."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    try:
        unit = listening_units().get(f"{host}:{endpoint.port}", "")
    except LedgerError:
        # Whoever holds the port is told of by what the kernel says.
        return ""
    return unit if unit.startswith(SOCKET_UNITS) else ""


def listeners(port: int) -> set[int]:
    """Pids that listen at a tcp port; those of other accounts are seen by root alone."""
    found = set()
    for connection in psutil.net_connections(kind="tcp"):
        address = connection.laddr
        # Without one it is an empty tuple.
        if not address or connection.status != psutil.CONN_LISTEN:
            continue
        if address.port == port and connection.pid:
            found.add(connection.pid)
    return found


def _is_free(endpoint: Endpoint) -> bool:
    """Whether the port can be bound; a host that is none of this machine's stands for all."""
    host = endpoint.host
    try:
        host = str(ipaddress.ip_address(host))
    except ValueError:
        host = "0.0.0.0"  # noqa: S104 - tried, and listened at never
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for tried in (host, "::" if family == socket.AF_INET6 else "0.0.0.0"):  # noqa: S104 - tried, and listened at never
            try:
                probe.bind((tried, endpoint.port))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    continue
                return False
            return True
    return True


def _program(pid: int) -> str:
    try:
        return f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:
        return f"pid {pid}"


def _given_away(endpoints: list[Endpoint]) -> Diagnosis:
    low, high = map(int, _RANGE.read_text().split())
    reserved = _RESERVED.read_text().strip() if _RESERVED.exists() else ""
    within = sorted(
        {
            endpoint.port
            for endpoint in endpoints
            if low <= endpoint.port <= high and not _is_in(reserved, endpoint.port)
        }
    )
    limit = f"outside {low} to {high}, or reserved"
    if not within:
        return ok("ports.reserved", "no connection of others is given one of them", limit=limit)
    ports = ",".join(map(str, within))
    return warn(
        "ports.reserved",
        f"the system may give {ports} to any connection",
        limit=limit,
        change=f"set net.ipv4.ip_local_reserved_ports = {ports} in /etc/sysctl.d, or the node may"
        " find its port taken at a start",
    )


def _is_in(ranges: str, port: int) -> bool:
    found = re.findall(r"(\d+)(?:-(\d+))?", ranges)
    return any(int(low) <= port <= int(high or low) for low, high in found)
