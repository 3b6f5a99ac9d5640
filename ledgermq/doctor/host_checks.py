"""Host checks: kernel, processors, memory, how the kernel treats memory, and the node's ports."""

from __future__ import annotations

import errno
import ipaddress
import os
import platform
import re
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from ledgermq.doctor.finding import Check, Diagnosis, ok, warn
from ledgermq.doctor.subject import Subject
from ledgermq.formats.kernels import kernel
from ledgermq.members.peer_addresses import parse_peer
from ledgermq.model.config.amounts import size_text
from ledgermq.model.config.settings_rules import HTTP_UNIX
from ledgermq.model.errors import LedgerError
from ledgermq.process.systemd.port_addresses import ANYWHERE, VIP_SETTING, addresses_by_setting
from ledgermq.process.systemd.systemd_tools import listening_units


def asked(name: str, what: str, look: Callable[[], Diagnosis]) -> Diagnosis:
    """What ``look`` finds with the kernel's help; a warning where this process may not have it.

    Containers refuse calls, and hide files of ``/proc`` and ``/sys`` or show empty ones.

    Args:
        name: of the check.
        what: the kernel is asked for.
    """
    try:
        return look()
    except (OSError, psutil.Error, LookupError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        return warn(
            name,
            f"not measured: this container may not ask the kernel for {what} ({reason})",
            limit="measured",
            change="nothing, for the node works without; or run doctor on the host itself, as root",
        )


KERNEL_MIN = (5, 10)
CPUS_MIN = 2
NODE_BYTES = 192 * 1024 * 1024
"""What the five processes of a busy node take besides the windows that the settings allow."""

SWAPPINESS_MAX = 10
STRICT_OVERCOMMIT = 2
STRICT_ROOM = 512 * 1024 * 1024

SOCKET_UNITS = "ledgermq-remoting"
"""How the names of the package's socket units begin."""

_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RESERVED = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")


def host_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Findings about the machine."""
    yield _kernel()
    yield _kernels()
    yield asked("host.processors", "its processors", _processors)
    yield asked("host.load", "its load", _load)
    if not subject.settings.node.witness:
        # The limits are those of clients, and a witness without bodies has none.
        yield asked("host.memory", "its memory", lambda: _memory(subject))
    yield asked("host.swap", "its swap", lambda: _swap(subject))
    yield asked("host.overcommit", "what it promises of its memory", _overcommit)
    yield asked("host.huge-pages", "its huge pages", _huge_pages)


def _kernel() -> Diagnosis:
    release = platform.release()
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    least = ".".join(map(str, KERNEL_MIN))
    check = Check("host.kernel", f"at least {least}")
    if version >= KERNEL_MIN:
        return check.ok(f"Linux {release}")
    return check.warn(
        f"Linux {release}", "install the kernel of Debian 12 or later: older ones are not tested"
    )


def _kernels() -> Diagnosis:
    check = Check("host.kernels", "compiled")
    if kernel.compiled:
        return check.ok("kernels are compiled")
    return check.warn(
        "kernels are plain Python",
        "install a package or a wheel of this platform, or a C compiler before pip install:"
        " the node works, and takes and gives a small part of the messages a second",
    )


def _processors() -> Diagnosis:
    count = len(os.sched_getaffinity(0))
    check = Check("host.processors", f"at least {CPUS_MIN}")
    if count >= CPUS_MIN:
        return check.ok(f"{count} processors")
    return check.warn(
        f"{count} processor",
        "give the machine a second one: raft waits while the writer or a client computes",
    )


def _load() -> Diagnosis:
    count = len(os.sched_getaffinity(0))
    load = os.getloadavg()[1]
    measured = f"{load:.1f} runnable on {count} processors, over five minutes"
    check = Check("host.load", f"below {4 * count}")
    if load < 4 * count:
        return check.ok(measured)
    return check.warn(
        measured, "heartbeats come late on a machine that is this busy: see with top what runs here"
    )


def _memory(subject: Subject) -> Diagnosis:
    limits = subject.settings.limits
    memory = _memory_info()
    available = memory["MemAvailable"]
    needed = (
        NODE_BYTES
        + limits.total_window_bytes
        + limits.total_answers_bytes
        + limits.deduplication_memory_bytes
    )
    used = (
        sum(process["pss"] or 0 for process in subject.status["processes"])
        if (subject.status)
        else 0
    )
    measured = f"{size_text(available)} of {size_text(memory['MemTotal'])} available"
    check = Check(
        "host.memory", f"{size_text(needed)}, which the limits of the settings allow the node"
    )
    if available + used >= needed:
        return check.ok(measured)
    return check.warn(
        measured, "add memory, or lower limits.total_window_bytes and limits.total_answers_bytes"
    )


def _swap(subject: Subject) -> Diagnosis:
    swap = _memory_info()["SwapTotal"]
    swapped = sum(map(_swapped, subject.pids))
    swappiness = int(_read("/proc/sys/vm/swappiness"))
    if swapped:
        return warn(
            "host.swap",
            f"{size_text(swapped)} of the node are swapped out",
            limit="0 B",
            change="add memory, or set vm.swappiness = 1: a process that is swapped in misses "
            "heartbeats",
        )
    if not swap:
        return ok("host.swap", "no swap")
    measured = f"{size_text(swap)} of swap, vm.swappiness = {swappiness}"
    check = Check("host.swap", f"vm.swappiness at most {SWAPPINESS_MAX}")
    if swappiness <= SWAPPINESS_MAX:
        return check.ok(measured)
    return check.warn(
        measured,
        "set vm.swappiness = 1 in /etc/sysctl.d: the page cache of the log is not to push "
        "processes out",
    )


def _overcommit() -> Diagnosis:
    mode = int(_read("/proc/sys/vm/overcommit_memory"))
    measured = f"vm.overcommit_memory = {mode}"
    if mode != STRICT_OVERCOMMIT:
        return ok("host.overcommit", measured)
    info = _memory_info()
    room = info["CommitLimit"] - info["Committed_AS"]
    measured = f"{measured}, {size_text(room)} may still be promised"
    check = Check("host.overcommit", f"at least {size_text(STRICT_ROOM)} with mode 2")
    if room >= STRICT_ROOM:
        return check.ok(measured)
    return check.warn(
        measured,
        "set vm.overcommit_memory = 0, or raise vm.overcommit_ratio: a process that is "
        "started again is a fork",
    )


def _huge_pages() -> Diagnosis:
    # A kernel may be built without them.
    text = _read(_HUGE_PAGES) if Path(_HUGE_PAGES).exists() else ""
    found = re.search(r"\[(\w+)\]", text)
    return ok(
        "host.huge-pages",
        f"transparent huge pages: {found[1] if found else 'none'}",
        limit="any: heaps are small, and log files are mapped as ordinary pages",
    )


def _swapped(pid: int) -> int:
    try:
        text = _read(f"/proc/{pid}/status")
    except (FileNotFoundError, ProcessLookupError):
        # It has ended meanwhile.
        return 0
    found = re.search(r"^VmSwap:\s+(\d+) kB", text, re.M)
    return int(found[1]) * 1024 if found else 0


def _memory_info() -> dict[str, int]:
    """Bytes, by the kernel's names."""
    found = re.findall(r"^(\w+):\s+(\d+) kB", _read("/proc/meminfo"), re.M)
    return {name: int(kib) * 1024 for name, kib in found}


def _read(path: str) -> str:
    """Content of one of the kernel's files."""
    return Path(path).read_text().strip()


class Endpoint(NamedTuple):
    """A port that the node listens at."""

    setting: str
    host: str
    port: int


def port_checks(subject: Subject) -> Iterator[Diagnosis]:
    """A finding a port, and one about the ports that the system gives away itself."""
    endpoints = list(endpoints_of(subject))
    for endpoint in endpoints:
        yield asked(f"ports.{endpoint.setting}", "its listeners", partial(_port, subject, endpoint))
    if endpoints:
        yield asked("ports.reserved", "its range of ports", lambda: _given_away(endpoints))


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
    if listen.grpc is not None:
        host, _, port = listen.grpc.rpartition(":")
        yield Endpoint("listen.grpc", ANYWHERE if host == "*" else host.strip("[]"), int(port))
    for setting, (host, number) in addresses_by_setting(listen).items():
        yield Endpoint(setting, host, number)


def _port(subject: Subject, endpoint: Endpoint) -> Diagnosis:
    check = Check(f"ports.{endpoint.setting}", "this node's" if subject.pids else "free")
    holders = listeners(endpoint.port)
    own = set(subject.pids)
    unit = _unit_at(endpoint)
    if holders & own:
        whose = f", and {unit} holds it" if unit else ""
        return check.ok(f"port {endpoint.port} is this node's{whose}")
    if unit and subject.status is None:
        return check.ok(f"port {endpoint.port} is held for the node by {unit}")
    if holders or (not subject.pids and not _is_free(endpoint)):
        who = ", ".join(_program(pid) for pid in sorted(holders)) or "a program of another account"
        return _taken(check, endpoint, who)
    if subject.status is None:
        return check.ok(f"port {endpoint.port} is free")
    if subject.status["state"] != "ready":
        return check.warn(
            f"nobody listens at port {endpoint.port}; the node is not ready",
            f"wait for {subject.status['waits_for'] or 'it: see node.state'}",
        )
    return check.warn(
        f"no process of this node is seen at port {endpoint.port}",
        "run doctor as root or as the node's account; else restart the node: its settings"
        " are others",
    )


def _taken(check: Check, endpoint: Endpoint, who: str) -> Diagnosis:
    finding = f"port {endpoint.port} is taken by {who}"
    if endpoint.setting == VIP_SETTING:
        return check.warn(
            f"{finding}: RocketMQ's clients with vipChannelEnabled do not find this node",
            f"stop that program, or set {VIP_SETTING} to false",
        )
    return check.fail(
        finding,
        f"stop that program, or take another port in {endpoint.setting} (of members:"
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
    check = Check("ports.reserved", f"outside {low} to {high}, or reserved")
    if not within:
        return check.ok("no connection of others is given one of them")
    ports = ",".join(map(str, within))
    return check.warn(
        f"the system may give {ports} to any connection",
        f"set net.ipv4.ip_local_reserved_ports = {ports} in /etc/sysctl.d, or the node may"
        " find its port taken at a start",
    )


def _is_in(ranges: str, port: int) -> bool:
    found = re.findall(r"(\d+)(?:-(\d+))?", ranges)
    return any(int(low) <= port <= int(high or low) for low, high in found)
