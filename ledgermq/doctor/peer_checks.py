"""Peer checks: whether the other members are reached, let this node in, and have its time; and
whether the home of the cluster is heard.

Of a witness without bodies neither its time nor what it lacks is of any weight.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import zmq
from zmq.utils.monitor import parse_monitor_message

from ledgermq.client.broker_connection import connect_broker
from ledgermq.doctor.finding import Check, Diagnosis, fail, ok
from ledgermq.doctor.subject import Subject, host_of
from ledgermq.hosts.socket_monitor import monitor_of
from ledgermq.members.peer_addresses import PeerAddress, parse_peer
from ledgermq.members.roster import RosterFile
from ledgermq.model.errors import CorruptLogError, LedgerError
from ledgermq.model.ids import NodeId
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
