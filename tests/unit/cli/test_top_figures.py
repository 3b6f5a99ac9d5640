"""Rates and lags that come of two looks at a cluster."""

from __future__ import annotations

from typing import Any, cast

from ledgermq.cli.top.top_figures import (
    ClusterFigures,
    MirrorFigures,
    OwnMirrorFigures,
    Rates,
    SortOrder,
    figures,
    sorted_groups,
)
from ledgermq.cli.top.top_look import GroupsLook, Look, MirrorLook, MirrorsLook, NodeLook

SECOND_NS = 1_000_000_000


def report(name: str, **given: int) -> Any:
    """What a node tells; ``given``: ``seconds``, ``messages``, ``written``, ``generation`` …"""
    written = given.get("written", 0)
    return {
        "node": {"cluster": "c", "broker": "b", "self_id": name, "peers": ["n0-h:1", "n1-h:2"]},
        "raft": {
            "role": "leader" if given.get("leads") else "follower",
            "term": given.get("term", 3),
            "stage": "",
        },
        "cursors": {
            "written": {"position": written},
            "dispatched_messages": given.get("messages", 0),
            "not_dispatched_bytes": 0,
        },
        "disk": {},
        "processes": [],
        "counters": {"broker": {"messages": given.get("given", 0), "bytes": 0}},
        "groups_that_differ": {},
        "uptime_s": 1.0,
        "generation": given.get("generation", 1),
        "clock_ns": given.get("seconds", 0) * SECOND_NS,
    }


def look(*nodes: Any, at_s: int = 0, groups: Any = ()) -> Look:
    looks = [NodeLook(one["node"]["self_id"], one["node"]["self_id"], one, "") for one in nodes]
    return Look(at_s * 1_000, looks, GroupsLook(groups, len(groups), 0))


def group(name: str, lag: int, consumed: int, members: int = 0) -> Any:
    return {
        "group": name, "lag": lag, "consumed": consumed, "topics": {}, "topic_count": 1,
        "members": members, "warnings": [],
    }  # fmt: skip


def test_rates_are_a_second_of_the_nodes_own_clock() -> None:
    before = look(report("n0", messages=100, written=1_000, given=10))
    now = look(report("n0", seconds=2, messages=300, written=5_000, given=50), at_s=99)

    assert figures(before, now).nodes[0].rates == Rates(100.0, 2_000.0, 20.0, 0.0)


def test_a_node_that_was_started_anew_has_no_rates_yet() -> None:
    before = look(report("n0", messages=100))
    now = look(report("n0", seconds=2, messages=300, generation=2))

    assert figures(before, now).nodes[0].rates == Rates()
    assert figures(None, now).nodes[0].rates == Rates()


def test_a_cut_log_has_no_negative_rate() -> None:
    before = look(report("n0", written=9_000))
    now = look(report("n0", seconds=1, written=5_000))

    assert figures(before, now).nodes[0].rates.in_bytes is None


def test_a_follower_is_behind_what_the_leader_of_the_highest_term_has() -> None:
    old = report("n0", leads=1, term=3, written=9_999)
    new = report("n1", leads=1, term=4, written=5_000)
    found = figures(None, look(old, new, report("n2", written=4_200)))

    assert [node.behind for node in found.nodes] == [0, 0, 800]


def test_a_member_without_an_address_is_listed_as_not_asked() -> None:
    found = figures(None, look(report("n0", leads=1)))

    assert [(node.name, node.away) for node in found.nodes] == [("n0", ""), ("n1", "not asked")]


def test_a_witness_without_messages_is_no_member_that_was_not_asked() -> None:
    told = report("n0", leads=1) | {"bodiless": ["n1"]}
    found = figures(None, look(told))

    assert [(node.name, node.role) for node in found.nodes] == [("n0", "leader"), ("n1", "witness")]


def test_a_node_that_is_away_keeps_its_name_and_is_not_listed_twice() -> None:
    away = NodeLook("a1", "n1", None, "no answer")
    there = look(report("n0", leads=1))
    found = figures(None, there._replace(nodes=[*there.nodes, away]))

    assert [(node.name, node.away) for node in found.nodes] == [("n0", ""), ("n1", "no answer")]
    nameless = there._replace(nodes=[*there.nodes, away._replace(name="")])
    assert len(figures(None, nameless).nodes) == 2


def test_the_last_archive_lacks_what_lies_behind_its_position() -> None:
    waiting, free = report("n0", leads=1), report("n1")
    for one in (waiting, free):
        one["cursors"]["dispatched"] = 9_000
    waiting["counters"]["broker"] |= {"archives": 2, "archived_position": 8_200}
    found = figures(None, look(waiting, free))

    assert [node.unarchived for node in found.nodes] == [800, None]
    for one, sealed in ((waiting, 8_000), (free, 9_000)):
        one["cold_place"] = "/pieces"
        one["counters"]["cold"] = {"sealed_position": sealed}
    assert [node.unarchived for node in figures(None, look(waiting, free)).nodes] == [1_000, 0]


def test_a_mirror_is_no_follower_and_tells_what_it_lacks() -> None:
    mirror, starting = report("m0", written=400), report("n1")
    mirror["counters"]["raft"] = {
        "mirror_lag_messages": 3, "mirror_lag_bytes": 600, "mirror_lag_seconds": 2,
    }  # fmt: skip
    starting["counters"]["raft"] = {"mirror_lag_seconds": 0}
    told = look(report("n0", leads=1, written=1_000), mirror, starting, at_s=90)
    found = figures(
        None, told._replace(mirrors=MirrorsLook([MirrorLook("site-b", 900, 100, 60_000)]))
    )

    assert [(node.role, node.mirror) for node in found.nodes] == [
        ("leader", None), ("mirror", OwnMirrorFigures(3, 600, 2)), ("follower", None),
    ]  # fmt: skip
    assert found.mirrors == [MirrorFigures("site-b", 900, 100, 30.0)]


def test_groups_are_sorted_by_what_is_wanted() -> None:
    rows = [group("a", 5, 10, members=1), group("b", 9, 10), group("c", 1, 10, members=2)]
    after = [{**row, "consumed": 10 + grown} for row, grown in zip(rows, (8, 0, 4), strict=True)]
    found: ClusterFigures = figures(
        look(report("n0"), groups=rows), look(report("n0"), at_s=2, groups=after)
    )

    def names(order: SortOrder) -> str:
        return "".join(one.group for one in sorted_groups(found.groups, order))

    assert names(SortOrder.LAG) == "bac"
    assert names(SortOrder.RATE) == "acb"
    assert names(SortOrder.MEMBERS) == "cab"
    assert names(SortOrder.NAME) == "abc"
    assert cast("float", found.groups[0].rate) == 4.0


def test_what_port_processes_give_to_consumers_counts_as_the_brokers() -> None:
    before, now = report("n0", given=10), report("n0", seconds=2, given=20)
    before["counters"]["port-1"] = dict.fromkeys(before["counters"]["broker"], 5)
    now["counters"]["port-1"] = dict.fromkeys(now["counters"]["broker"], 45)

    assert figures(look(before), look(now)).nodes[0].rates.out_messages == 25.0
