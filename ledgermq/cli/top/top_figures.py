"""Figures of ``top``: rates between two looks at a cluster, and lags.

Rates are a second, by each node's own clock. They are ``None`` for what was not there at the look
before, and after a restart, when counters begin anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from ledgermq.cli.top.top_look import Look, NodeLook, is_mirror, leader_of

if TYPE_CHECKING:
    from ledgermq.broker.administration.node_calls import DiskReport, GroupReport, NodeReport


class Rates(NamedTuple):
    """Messages and bytes a second: in, what came into the node's log; out, what consumers got."""

    in_messages: float | None = None
    in_bytes: float | None = None
    out_messages: float | None = None
    out_bytes: float | None = None


SERVICES = {
    "delayed_delivered": "delayed",
    "timers_delivered": "timers",
    "transactions_committed": "committed",
    "messages_retried": "retried",
    "messages_dead": "dead",
    "throttled": "throttled",
}
"""Counters of the broker whose rates are told, and as what."""


class OwnMirrorFigures(NamedTuple):
    """What a mirror lacks of its source; ``seconds`` are whole, rounded up: since it lacked
    nothing, or since its machine's start.
    """

    messages: int
    bytes: int
    seconds: int


class NodeFigures(NamedTuple):
    """One node.

    ``away``: why it told nothing, empty when it did. ``role``: also ``witness``, of one that holds
    no messages and is never asked, and ``mirror``, of a copy of another site's log, which is read
    only. ``behind``: bytes that the leader has written and it has not, ``None`` when nobody leads.
    ``dispatch_behind``: bytes that are committed, and not yet in the queues. ``memory``: PSS by
    process. ``services``: what they did a second, by the names of ``SERVICES``. ``unarchived``:
    bytes that the last of the archives lacks for which retention waits, sealed pieces among them,
    ``None`` when it waits for none. ``mirror``: what a mirror lacks, ``None`` of another node.
    ``cold_place``: where its pieces are, ``None``: it has none.
    """

    name: str
    address: str
    away: str = ""
    role: str = ""
    term: int = 0
    stage: str = ""
    rates: Rates = Rates()
    services: Mapping[str, float | None] = {}
    behind: int | None = None
    dispatch_behind: int = 0
    disk: DiskReport | None = None
    memory: Mapping[str, int | None] = {}
    cpu: Mapping[str, float | None] = {}
    counters: Mapping[str, Mapping[str, int]] = {}
    differing: Mapping[str, Sequence[str]] = {}
    uptime_s: float = 0.0
    unarchived: int | None = None
    mirror: OwnMirrorFigures | None = None
    cold_place: str | None = None


class MirrorFigures(NamedTuple):
    """A mirror at another site, by what it has told the leader ``told_s`` seconds ago: it held the
    log up to ``position``, and lacked ``behind`` bytes of what there is now.
    """

    mirror: str
    position: int
    behind: int
    told_s: float


class GroupFigures(NamedTuple):
    """One consumer group; ``rate`` is what it consumes a second, ``topics`` its lag in each."""

    group: str
    members: int
    lag: int
    rate: float | None
    topics: Mapping[str, int]
    topic_count: int
    warnings: Sequence[str]


class ClusterFigures(NamedTuple):
    """All of them; ``groups_why``, ``mirrors_why``: why there are none of groups, or mirrors."""

    at_ms: int
    cluster: str
    nodes: Sequence[NodeFigures]
    groups: Sequence[GroupFigures]
    group_count: int
    group_lag: int
    groups_complete: bool
    groups_why: str
    mirrors: Sequence[MirrorFigures] = ()
    mirrors_why: str = ""


class SortOrder(StrEnum):
    """How groups are sorted."""

    LAG = "lag"
    RATE = "rate"
    MEMBERS = "members"
    NAME = "name"


def figures(before: Look | None, now: Look) -> ClusterFigures:
    """What ``now`` comes to; without a look ``before`` there are no rates."""
    earlier = {} if before is None else {node.address: node.report for node in before.nodes}
    leader = leader_of(now.nodes)
    led = None if leader is None else now.nodes[leader].report
    written = None if led is None else led["cursors"]["written"]["position"]
    nodes = [_node(node, earlier.get(node.address), written) for node in now.nodes]
    reports = [node.report for node in now.nodes if node.report is not None]
    first = led or (reports[0] if reports else None)
    told = now.groups
    return ClusterFigures(
        at_ms=now.at_ms,
        cluster=f"{first['node']['cluster']}/{first['node']['broker']}" if first else "",
        nodes=nodes + _unasked(first, nodes) + _witnesses(first),
        groups=_groups(before, now),
        group_count=told.total,
        group_lag=told.lag,
        groups_complete=told.complete,
        groups_why=told.why,
        mirrors=[
            MirrorFigures(
                one.mirror, one.position, one.behind, max(0, now.at_ms - one.at_ms) / 1_000
            )
            for one in now.mirrors.mirrors
        ],
        mirrors_why=now.mirrors.why,
    )


def sorted_groups(groups: Sequence[GroupFigures], order: SortOrder) -> list[GroupFigures]:
    """Groups by ``order``, those with the most first."""
    if order is SortOrder.NAME:
        return sorted(groups, key=lambda one: one.group)

    def amount(one: GroupFigures) -> float:
        amounts = {
            SortOrder.LAG: one.lag,
            SortOrder.RATE: one.rate or 0.0,
            SortOrder.MEMBERS: one.members,
        }
        return amounts[order]

    return sorted(groups, key=lambda one: (-amount(one), one.group))


def _node(look: NodeLook, before: NodeReport | None, written: int | None) -> NodeFigures:
    report = look.report
    if report is None:
        return NodeFigures(name=look.name, address=look.address, away=look.why)
    cursors, raft, mirror = report["cursors"], report["raft"], _own_mirror(report)
    return NodeFigures(
        name=report["node"]["self_id"],
        address=look.address,
        role=raft["role"] if mirror is None else "mirror",
        term=raft["term"],
        stage=raft["stage"],
        rates=_rates(before, report),
        services=_services(before, report),
        behind=None if written is None else max(0, written - cursors["written"]["position"]),
        dispatch_behind=cursors["not_dispatched_bytes"],
        disk=report["disk"],
        memory={process["role"]: process["pss"] for process in report["processes"]},
        cpu={process["role"]: process["cpu_percent"] for process in report["processes"]},
        counters=report["counters"],
        differing=report["groups_that_differ"],
        uptime_s=report["uptime_s"],
        unarchived=_unarchived(report),
        mirror=mirror,
        # A node of an older version has none.
        cold_place=report.get("cold_place"),
    )


def _own_mirror(report: NodeReport) -> OwnMirrorFigures | None:
    if not is_mirror(report):
        return None
    counters = report["counters"]["raft"]
    return OwnMirrorFigures(
        counters["mirror_lag_messages"],
        counters["mirror_lag_bytes"],
        counters["mirror_lag_seconds"],
    )


def _unasked(report: NodeReport | None, nodes: Sequence[NodeFigures]) -> list[NodeFigures]:
    """Members of which no address was given, or which never told their names."""
    if report is None:
        return []
    known = {node.name for node in nodes} | {*_bodiless(report)}
    nameless = sum(1 for node in nodes if not node.name)
    missing = [
        peer.partition("-")[0]
        for peer in report["node"]["peers"]
        if peer.partition("-")[0] not in known
    ]
    if len(missing) <= nameless:
        return []
    return [NodeFigures(name=name, address="", away="not asked") for name in missing[nameless:]]


def _bodiless(report: NodeReport) -> Sequence[str]:
    # A node of an older version knows of none.
    return report.get("bodiless", ())


def _witnesses(report: NodeReport | None) -> list[NodeFigures]:
    names = () if report is None else _bodiless(report)
    away = "holds no messages, and tells nothing"
    return [NodeFigures(name=name, address="", role="witness", away=away) for name in names]


def _unarchived(report: NodeReport) -> int | None:
    counters = report["counters"].get("broker", {})
    marks = [counters.get("archived_position", 0)] if counters.get("archives") else []
    if report.get("cold_place") is not None:
        marks.append(report["counters"].get("cold", {}).get("sealed_position", 0))
    return max(0, report["cursors"]["dispatched"] - min(marks)) if marks else None


def _served(report: NodeReport) -> Counter[str]:
    """What the broker and the processes beside it that serve clients have counted together."""
    found: Counter[str] = Counter()
    for process, counters in report["counters"].items():
        if process == "broker" or process.startswith("port-"):
            found.update(counters)
    return found


def _services(before: NodeReport | None, now: NodeReport) -> dict[str, float | None]:
    if before is None or before["generation"] != now["generation"]:
        return {}
    seconds = (now["clock_ns"] - before["clock_ns"]) / 1_000_000_000
    old, new = _served(before), _served(now)
    return {
        text: (new[name] - old[name]) / seconds if new[name] >= old[name] else None
        for name, text in SERVICES.items()
        # A node of another version may count other things.
        if seconds > 0 and name in old and name in new
    }


def _rates(before: NodeReport | None, now: NodeReport) -> Rates:
    if before is None or before["generation"] != now["generation"]:
        return Rates()
    seconds = (now["clock_ns"] - before["clock_ns"]) / 1_000_000_000
    if seconds <= 0:
        return Rates()

    def rate(old: int, new: int) -> float | None:
        return (new - old) / seconds if new >= old else None

    old, new = before["cursors"], now["cursors"]
    sent, given = _served(before), _served(now)
    return Rates(
        rate(old["dispatched_messages"], new["dispatched_messages"]),
        rate(old["written"]["position"], new["written"]["position"]),
        rate(sent["messages"], given["messages"]),
        rate(sent["bytes"], given["bytes"]),
    )


def _groups(before: Look | None, now: Look) -> list[GroupFigures]:
    earlier = {} if before is None else {one["group"]: one for one in before.groups.groups}
    seconds = 0.0 if before is None else (now.at_ms - before.at_ms) / 1_000
    return [_group(one, earlier.get(one["group"]), seconds) for one in now.groups.groups]


def _group(report: GroupReport, before: GroupReport | None, seconds: float) -> GroupFigures:
    rate = None
    if before is not None and seconds > 0 and report["consumed"] >= before["consumed"]:
        rate = (report["consumed"] - before["consumed"]) / seconds
    return GroupFigures(
        group=report["group"],
        members=report["members"],
        lag=report["lag"],
        rate=rate,
        topics=report["topics"],
        topic_count=report["topic_count"],
        warnings=report["warnings"],
    )
