"""Examination: all checks in their order; one that cannot be made is a finding, too.

Of a witness without bodies neither its time nor what it lacks is of any weight.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import zmq
from zmq.utils.monitor import parse_monitor_message

from ledgermq.client.broker_connection import connect_broker
from ledgermq.doctor.disk_checks import disk_checks, store_checks
from ledgermq.doctor.finding import PARTS, Check, Diagnosis, fail, ok, warn
from ledgermq.doctor.host_checks import asked, host_checks, port_checks
from ledgermq.doctor.settings_checks import key_checks, read_checked, settings_checks
from ledgermq.doctor.subject import Subject, host_of, way_in
from ledgermq.hosts.accounts import account_name
from ledgermq.hosts.socket_monitor import monitor_of
from ledgermq.members.peer_addresses import PeerAddress, parse_peer
from ledgermq.members.reports import read_levels
from ledgermq.members.roster import RosterFile
from ledgermq.model.config.amounts import size_text
from ledgermq.model.errors import CorruptLogError, LedgerError
from ledgermq.model.features import MemberLevel, described, holding_back, version_of
from ledgermq.model.ids import NodeId
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.sessions.keys.peer_keys import PeerKeys, load_keys

HANDSHAKE_MAX_S = 3.0
CLOCKS_MAX_MS = 500
SILENT_MAX_MS = 2_000
HOME_SILENT_MAX_S = 60
"""The home of a cluster is heard every 40 s at least."""

_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_CONNECTED
)


class Shake(NamedTuple):
    """How a connection to a member went: an empty ``trouble`` is a handshake that succeeded."""

    took_ms: float
    trouble: str
    is_connected: bool


def peer_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Four findings a member: reached, admitted, the same time and the same place of pieces; and
    who has what is committed.

    One more of a group in a cluster: whether its home is heard.
    """
    yield from _home(subject)
    settings = subject.settings
    others = {
        node: address
        for node, address in members_of(subject).items()
        if node != settings.node.self_id
    }
    if not others:
        yield ok("peers.members", "a group of one talks with nobody")
        return
    try:
        keys = load_keys(settings)
    except LedgerError as error:
        yield fail(
            "peers.members",
            f"not tried without keys: {error.message}",
            limit="keys of all",
            change="see keys.members",
        )
        return
    for node, address in others.items():
        yield from _reached(subject, node, address, keys)
        if subject.raft is not None:
            yield _admitted(subject.raft, node)
        if node not in _bodiless(subject.raft):
            yield _same_time(subject, node, address)
            yield _same_place(subject, node, address)
    if subject.raft is not None and subject.raft.get("copies") is not None:
        yield _copies(subject.raft)


def _home(subject: Subject) -> Iterator[Diagnosis]:
    """Whether the rights of the cluster's users are known; nothing of a group of no cluster."""
    status = subject.status
    counters: Mapping[str, int] = {} if status is None else status["counters"].get("broker", {})
    current_ms = counters.get("cluster_current_at", 0)
    change = "see why in `ledgermq cluster status`, asked of the leader"
    if counters.get("cluster_rights_too_old"):
        yield fail(
            "peers.home",
            "not heard for too long: the cluster's users are refused",
            limit=f"{subject.settings.access.cluster_rights_max_age_s} s",
            change=change,
        )
    elif current_ms:
        silent_s = time.time() - current_ms / 1_000
        measured = f"all rows of the cluster were here {silent_s:.0f} s ago"
        check = Check("peers.home", f"{HOME_SILENT_MAX_S} s")
        if silent_s > HOME_SILENT_MAX_S:
            yield check.warn(measured, change)
        else:
            yield check.ok(measured)


def members_of(subject: Subject) -> dict[NodeId, PeerAddress]:
    """All members with their addresses: those that the log names, else those of the settings."""
    try:
        known = RosterFile(subject.paths.members).entries
    except CorruptLogError:
        known = ()  # told by the checks of the store
    if known:
        addresses = known[-1].roster.addresses
        return {node: parse_peer(f"{node}-{text}")[1] for node, text in addresses.items()}
    return dict(map(parse_peer, subject.settings.node.peers))


def _reached(
    subject: Subject, node: NodeId, address: PeerAddress, keys: PeerKeys | None
) -> Iterator[Diagnosis]:
    check = Check(f"peers.{node}.reached", f"a handshake within {HANDSHAKE_MAX_S:.0f} s")
    if keys is not None and node not in keys.public:
        yield check.warn("not tried: no public key of it here", "see keys.roster")
        return
    shake = shake_hands(NodeId(subject.settings.node.self_id), node, address, keys)
    if not shake.trouble:
        yield check.ok(f"{address.endpoint}: handshake in {shake.took_ms:.0f} ms")
        return
    yield check.fail(
        f"{address.endpoint}: {shake.trouble}",
        "compare the keys of both (raft.keys_dir), and raft.curve"
        if shake.is_connected
        else "start that member; or see what between the two closes the port",
    )


def shake_hands(own: NodeId, node: NodeId, address: PeerAddress, keys: PeerKeys | None) -> Shake:
    """Connect as a member does, say nothing, and disconnect; within ``HANDSHAKE_MAX_S``."""
    with zmq.Context(io_threads=1) as context:
        context.linger = 0
        socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        if ":" in address.host or not address.host.replace(".", "").isdecimal():
            socket.setsockopt(zmq.IPV6, 1)
        if keys is not None:
            socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public[own])
            socket.setsockopt(zmq.CURVE_SERVERKEY, keys.public[node])
        monitor = monitor_of(socket, _EVENTS)
        began = time.monotonic()
        try:
            socket.connect(address.endpoint)
            return _outcome(monitor, began)
        finally:
            socket.disable_monitor()
            monitor.close(0)
            socket.close(0)


def _outcome(monitor: zmq.Socket[bytes], began: float) -> Shake:
    is_connected = False
    while True:
        now = time.monotonic()
        left_ms = int((began + HANDSHAKE_MAX_S - now) * 1_000)
        if left_ms <= 0 or not monitor.poll(left_ms):
            trouble = "connected, and no handshake" if is_connected else "not reached"
            return Shake(
                (now - began) * 1_000, f"{trouble} within {HANDSHAKE_MAX_S:.0f} s", is_connected
            )
        event = int(parse_monitor_message(monitor.recv_multipart())["event"])
        took_ms = (time.monotonic() - began) * 1_000
        if event == zmq.EVENT_CONNECTED:
            is_connected = True
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            return Shake(took_ms, "", True)
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return Shake(took_ms, "it does not know this node's key", True)
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            return Shake(took_ms, "raft.curve differs, or another program listens there", True)
        else:
            return Shake(
                took_ms,
                "its key is not the one that is here, raft.curve differs, or it stops",
                True,
            )


def _admitted(raft: Mapping[str, object], node: NodeId) -> Diagnosis:
    """What the running node knows."""
    check = Check(f"peers.{node}.admitted", "lets this node in, and is let in")
    refusal = cast("Mapping[str, str]", raft["refusals"]).get(node)
    if refusal is not None:
        return check.fail(
            refusal, "as the reason says: key, settings that must be alike, disk, or membership"
        )
    peers = cast("list[Mapping[str, object]]", raft["peers"])
    known = next((peer for peer in peers if peer["node"] == node), None)
    if known is None or raft["role"] != "leader":
        leader = raft["leader"] or "nobody"
        return check.ok(f"no refusal; {leader} leads")
    silent_ms = cast("int", known["silent_ms"])
    behind = "without messages" if node in _bodiless(raft) else f"{known['behind']} entries behind"
    measured = f"{behind}, heard of {silent_ms} ms ago"
    if silent_ms > SILENT_MAX_MS:
        within = check._replace(limit=f"heard of within {SILENT_MAX_MS} ms")
        return within.fail(
            measured,
            "start that member, or see why it does not answer",
        )
    return check.ok(measured)


def _copies(raft: Mapping[str, object]) -> Diagnosis:
    """Whether a leader whose group has a witness without bodies leans on it."""
    check = Check("peers.copies", "the leader leans on no witness")
    measured = f"{raft['copies']} members hold all that is committed"
    if raft["leans_on_witness"]:
        return check.warn(
            f"{measured}, and the leader leans on a witness",
            "bring the member back that is away, or replace it; leave the others alone"
            " (docs/operating/two-sites.md)",
        )
    return check.ok(measured)


def _bodiless(raft: Mapping[str, object] | None) -> Sequence[str]:
    # A node that was not restarted since its version came says nothing of it.
    return () if raft is None else cast("Sequence[str]", raft.get("bodiless", ()))


def _same_time(subject: Subject, node: NodeId, address: PeerAddress) -> Diagnosis:
    """Asked of the member's socket for consumers, where it listens over tcp as this node does."""
    check = Check(f"peers.{node}.clock", f"at most {CLOCKS_MAX_MS} ms apart")
    endpoint, why_not = _endpoint(subject, address)
    if why_not:
        return check.ok(f"not measured: {why_not}")
    try:
        apart_ms, within_ms = clock_difference(endpoint)
    except LedgerError as error:
        return check.ok(f"not measured: {endpoint}: {error.message}")
    measured = f"{apart_ms:+.0f} ms, measured to {within_ms:.0f} ms"
    if abs(apart_ms) - within_ms <= CLOCKS_MAX_MS:
        return check.ok(measured)
    return check.warn(
        measured,
        "synchronise the clocks of both: after a change of leaders, delays and the times of"
        " messages jump by that much",
    )


def _endpoint(subject: Subject, address: PeerAddress) -> tuple[str, str]:
    """Where a member listens to consumers, as this node does; or why it cannot be asked there."""
    consume = subject.settings.listen.consume
    if consume is None or subject.settings.listen.curve_secret_file is not None:
        return "", "members listen to no client in the clear"
    if address.host == host_of(consume):
        return "", "on the same host"
    return f"tcp://{address.host}:{consume.rpartition(':')[2]}", ""


def _same_place(subject: Subject, node: NodeId, address: PeerAddress) -> Diagnosis:
    """Whether consumers get old messages of a member as they do of this node."""
    check = Check(f"peers.{node}.cold", "cold.place as here")
    endpoint, why_not = _endpoint(subject, address)
    if why_not:
        return check.ok(f"not asked: {why_not}; `ledgermq top` tells where members differ")
    try:
        there = cold_place(endpoint)
    except LedgerError as error:
        return check.ok(f"not asked: {endpoint}: {error.message}")
    measured, here = there or "none", subject.settings.cold.place
    if there == here:
        return check.ok(measured)
    return check.warn(
        f"{measured}; here {here or 'none'}",
        "set the same cold.place on all members: one without it deletes what is not sealed, and"
        " takes its consumers past what its log has no more",
    )


def cold_place(endpoint: str) -> str | None:
    """Where the node there has its pieces; None: nowhere, or its version knows of none.

    Raises:
        LedgerError: the node did not tell.
    """
    with connect_broker(endpoint, name="ledgermq doctor", timeout_s=HANDSHAKE_MAX_S) as broker:
        return cast("str | None", broker.call("node_report").get("cold_place"))


def clock_difference(endpoint: str) -> tuple[float, float]:
    """Milliseconds by which the clock there is ahead of the one here, and how sure that is.

    Raises:
        LedgerError: the node did not tell.
    """
    with connect_broker(endpoint, name="ledgermq doctor", timeout_s=HANDSHAKE_MAX_S) as broker:
        broker.call("node_report")  # the first one pays for the connection
        began_ns = time.time_ns()
        report = broker.call("node_report")
        ended_ns = time.time_ns()
    there_ms = cast("int", report["epoch_ms"])
    half_ms = (ended_ns - began_ns) / 2_000_000
    return there_ms - (began_ns / 1_000_000 + half_ms), half_ms


FILES_MIN = 1_024
FILES_WISE = 65_536
LOCKED_MIN = 64 * 1024
_NAME_WIDTH = 25
"""Characters of the first column in ``/proc/PID/limits``."""

ERROR_MAX_MS = 1_000
_TIME_ERROR = 5
_STA_UNSYNC = 0x40
Checks = Callable[[Subject], Iterator[Diagnosis]]


def limit_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Findings about open files and locked memory."""
    whose = "the node" if subject.pids else "this shell; the unit sets its own"
    pid = subject.pids[0] if subject.pids else 0
    yield asked(
        "limits.open-files",
        "its limits",
        lambda: _files(subject, _soft_limits(pid)["Max open files"], whose),
    )
    yield asked(
        "limits.locked-memory",
        "its limits",
        lambda: _locked(_soft_limits(pid)["Max locked memory"], whose),
    )


def _soft_limits(pid: int) -> dict[str, int | None]:
    """Soft limits of a process, of this one for 0, by the kernel's names; None: there is none.

    Not prlimit(2), which tells of other accounts' processes only whom may change them, too: root of
    a container may not.
    """
    lines = Path(f"/proc/{pid or 'self'}/limits").read_text().splitlines()[1:]
    return {
        line[:_NAME_WIDTH].strip(): None if soft == "unlimited" else int(soft)
        for line in lines
        if (soft := line[_NAME_WIDTH:].split()[0])
    }


def _files(subject: Subject, soft: int | None, whose: str) -> Diagnosis:
    queues = count_queues(subject.paths.consume_queues)
    measured = f"{_number(soft)} open files for {whose}; {queues} queues"
    wanted = max(FILES_WISE, 2 * queues)
    check = Check("limits.open-files", f"at least {FILES_MIN}, better {wanted}")
    if soft is None or soft >= wanted:
        return check.ok(measured)
    change = f"LimitNOFILE={4 * FILES_WISE} in the unit, or ulimit -n for a node of a shell"
    if soft < FILES_MIN:
        return check.fail(measured, change)
    return check.warn(measured, change)


def _locked(soft: int | None, whose: str) -> Diagnosis:
    text = "unlimited" if soft is None else size_text(soft)
    measured = f"{text} of locked memory for {whose}"
    check = Check(
        "limits.locked-memory",
        f"at least {size_text(LOCKED_MIN)}, for keys; the node locks nothing else",
    )
    if soft is None or soft >= LOCKED_MIN:
        return check.ok(measured)
    return check.warn(measured, "LimitMEMLOCK=64K in the unit")


def count_queues(folder: Path) -> int:
    """Queues below ``consumequeue``; 0 when there is none."""
    return sum(1 for _ in folder.glob("*/*")) if folder.is_dir() else 0


def _number(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)


def level_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Two findings: what the members know, and what the log needs."""
    if subject.status is None:
        yield ok("levels.members", "not known: the node does not run")
        return
    if subject.settings.node.witness:
        yield ok("levels.members", "not known to a witness: ask doctor of a member with messages")
        return
    counters = subject.status["counters"].get("broker", {})
    members = read_levels(RuntimePaths(subject.settings.listen.runtime_dir).levels)
    if "feature_level" not in counters or not members:
        yield ok("levels.members", "not known: the node runs a version from before them")
        return
    yield _members(members, counters["feature_level"])
    yield _log(counters)


def _members(members: list[MemberLevel], in_force: int) -> Diagnosis:
    measured = f"{described(members)}; level {in_force} is in force"
    newest = max(one["level"] or 0 for one in members)
    check = Check("levels.members", f"all know level {newest}")
    reasons = holding_back(members, newest)
    if reasons:
        return check.warn(measured, f"{'; '.join(reasons)}: see docs/operating/new-version.md")
    if newest > in_force:
        measured += ": the next step is `ledgermq cluster features --enable`"
    return check.ok(measured)


def _log(counters: Mapping[str, int]) -> Diagnosis:
    check = Check("levels.log", "every command in it is understood")
    needed = counters["level_needed"]
    if not needed:
        return check.ok("what it has is known to this version")
    return check.fail(
        f"its next command needs level {needed}: the tables stand still, and this node does"
        " not lead",
        f"install version {version_of(needed)}, and restart the node",
    )


class _Timex(ctypes.Structure):
    """``struct timex`` of Linux on 64-bit machines, up to what is read here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def clock_checks(_subject: Subject) -> Iterator[Diagnosis]:
    """One finding: synchronised, and how far off the clock may be."""
    yield asked("clock.synchronised", "its clock", _clock)


def _clock() -> Diagnosis:
    state, error_ms, is_unsynced = kernel_clock()
    check = Check("clock.synchronised", f"synchronised, at most {ERROR_MAX_MS} ms off")
    change = (
        "install chrony or systemd-timesyncd and let it run: the times of messages, delays and"
        " retention are those of the leader's clock"
    )
    if state == _TIME_ERROR or is_unsynced:
        return check.warn("nothing synchronises it", change)
    if error_ms > ERROR_MAX_MS:
        return check.warn(f"up to {error_ms} ms off", change)
    return check.ok(f"synchronised, at most {error_ms} ms off")


def kernel_clock() -> tuple[int, int, bool]:
    """State of the clock, its largest error in ms, and whether the kernel calls it unsynchronised.

    Raises:
        OSError: the kernel does not tell.
    """
    asked = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked))
    if state < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return state, asked.maxerror // 1_000, bool(asked.status & _STA_UNSYNC)


_CHECKS: tuple[Checks, ...] = (
    *(host_checks, limit_checks, disk_checks, clock_checks, port_checks, key_checks),
    *(peer_checks, level_checks, settings_checks, store_checks),
)
GROUPS = dict(zip(PARTS, _CHECKS, strict=True))
"""What is run for each part."""


def examine(path: Path, groups: tuple[str, ...] = PARTS) -> Iterator[Diagnosis]:
    """What is found with the node of a settings file, which may run or not.

    Writes a file of 128 KiB into the store's folder, which has no name and is gone at the end;
    binds ports for a moment when the node does not run; connects to each member, and says nothing.

    Args:
        path: the settings file.
        groups: which parts; without settings that can be used there are none but the first finding.
    """
    settings, about_file = read_checked(path)
    yield about_file
    if settings is None:
        return
    subject = Subject.of(settings)
    yield _state(subject)
    for group in groups:
        yield from _guarded(group, subject)


def _state(subject: Subject) -> Diagnosis:
    barrier = subject.barrier
    if subject.status is None and barrier is not None:
        return warn(
            "node.state",
            f"not asked: {account_name(os.geteuid())} may not open {barrier}",
            limit="an account that may use the node's sockets",
            change=way_in(barrier),
        )
    if subject.status is None:
        return ok("node.state", f"does not run, or cannot be asked: {subject.silence}")
    raft = subject.status["raft"]
    value = f"{subject.status['state']}, {raft['role']} in term {raft['term']}"
    # A node that was started by an earlier version tells no health.
    health = subject.status.get("health")
    reasons = health["reasons"] if health else []
    if not reasons:
        return ok("node.state", value)
    return warn(
        "node.state",
        f"{value}: {'; '.join(reason['text'] for reason in reasons)}",
        limit="ready",
        change=f"see {', '.join(reason['see'] for reason in reasons)}",
    )


def _guarded(group: str, subject: Subject) -> Iterator[Diagnosis]:
    try:
        yield from GROUPS[group](subject)
    except (LedgerError, OSError) as error:
        yield fail(
            f"{group}.checks",
            f"not finished: {error}",
            limit="all of them made",
            change="run doctor as root or as the node's account",
        )
