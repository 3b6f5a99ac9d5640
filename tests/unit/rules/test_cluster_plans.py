"""Plans of a cluster: what a wanted change needs, and what is refused before it is in the log."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import BusyError, ConfigError
from ledgermq.model.names.clusters import CLUSTER_GROUPS_MAX
from ledgermq.rules.cluster import cluster_plans
from ledgermq.rules.cluster.certificates import Certificate, certify
from ledgermq.rules.cluster.cluster_commands import (
    ClusterJoined,
    ClusterLeft,
    HomeCertified,
    RowChanged,
    TombstonesForgotten,
)
from ledgermq.rules.cluster.cluster_plans import (
    Plan,
    plan_beginning,
    plan_group,
    plan_handing_over,
    plan_joining,
    plan_leaving,
    plan_row,
    plan_taking_over,
    plan_without_group,
)
from ledgermq.rules.cluster.cluster_table import GROUP_KIND, ClusterTable
from ledgermq.rules.cluster.document_desk import DocumentRequest
from ledgermq.rules.cluster.numbered_rows import POINTS_KEPT, RowKey
from ledgermq.rules.cluster.signatures import SigningKey

ROOT, KEY = SigningKey(b"r" * 32), SigningKey(b"a" * 32)
OTHER = SigningKey(b"b" * 32)
A, B = "tcp://10.0.0.1:10912", "tcp://10.0.0.2:10912"
USER = RowKey("user", "u")


def chain_of(home: str, *, cluster: str = "c", start: int = 0) -> list[bytes]:
    wanted = Certificate(cluster, 1, True, home, KEY.public, start, b"")
    return [certify(ROOT, wanted).signed]


def joins(group: str, *nodes: str) -> ClusterJoined:
    return ClusterJoined("c", ROOT.public, group, nodes)


def applied(table: ClusterTable, plan: Plan) -> ClusterTable:
    for command in plan:
        table.apply(command)
        assert table.refused == ""
    return table


def home() -> ClusterTable:
    table = ClusterTable()
    return applied(table, plan_beginning(table, joins("a"), chain_of("a"), [A]))


def test_a_cluster_begins_with_its_home_and_its_row() -> None:
    table = home()

    assert (table.is_home, table.home, table.at.number) == (True, "a", 1)
    assert table.nodes_of("a") == [A]


def test_what_is_as_it_is_wanted_needs_nothing() -> None:
    table = home()
    other = ClusterTable()
    applied(other, plan_joining(other, joins("b", A), chain_of("a")))

    assert plan_beginning(table, joins("a"), chain_of("a"), [A]) == []
    assert plan_joining(other, joins("b", A), chain_of("a")) == []
    assert plan_group(table, "a", [A], user="") == []


def test_a_group_joins_with_the_certificates_of_the_home() -> None:
    other = ClusterTable()
    plan = plan_joining(other, joins("b", A), chain_of("a"))

    assert plan == [joins("b", A), HomeCertified(chain_of("a"))]
    applied(other, plan)
    assert (other.home, other.is_home, [*other.first_nodes]) == ("a", False, [A])


@pytest.mark.parametrize(
    ("joined", "chain", "reason"),
    [
        (joins("b", A), chain_of("a", cluster="other"), "does not belong here"),
        (joins("b", A), [], "the cluster's home is no other group"),
        (joins("a", A), chain_of("a"), "each group needs a name of its own"),
        (joins("b"), chain_of("a"), "named by their consume sockets"),
        (joins("b", "10.0.0.1:1"), chain_of("a"), "named by their consume sockets"),
        (joins("b", A)._replace(root=b"short"), chain_of("a"), "root key"),
    ],
)
def test_what_no_group_can_join_is_refused(
    joined: ClusterJoined, chain: list[bytes], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        plan_joining(ClusterTable(), joined, chain)


def test_a_group_of_one_cluster_joins_no_other_one() -> None:
    with pytest.raises(ConfigError, match="belongs to another cluster"):
        plan_joining(home(), joins("a", B)._replace(cluster="other"), chain_of("b"))


def test_a_cluster_does_not_begin_with_the_certificate_of_another_group() -> None:
    with pytest.raises(ConfigError, match="names another home"):
        plan_beginning(ClusterTable(), joins("a"), chain_of("b"), [A])


def test_groups_come_and_go_in_the_home_alone() -> None:
    table = home()
    applied(table, plan_group(table, "b", [B], user="other"))
    assert table.rows.value(RowKey(GROUP_KIND, "b")) == {"nodes": [B], "user": "other"}
    applied(table, plan_without_group(table, "b"))
    assert table.nodes_of("b") == []

    with pytest.raises(ConfigError, match="no group of that name"):
        plan_without_group(table, "b")
    with pytest.raises(ConfigError, match="home itself leaves as the last"):
        plan_without_group(table, "a")
    with pytest.raises(ConfigError, match="group belongs to no cluster"):
        plan_group(ClusterTable(), "b", [B], user="")
    other = ClusterTable()
    applied(other, plan_joining(other, joins("b", A), chain_of("a")))
    with pytest.raises(ConfigError, match="change in its home"):
        plan_group(other, "c", [B], user="")


def test_two_groups_of_one_name_are_told_apart_by_their_nodes() -> None:
    table = home()
    applied(table, plan_group(table, "b", [B], user=""))
    applied(table, plan_group(table, "b", [B, "tcp://10.0.0.3:10912"], user=""))

    with pytest.raises(ConfigError, match="another group has that name"):
        plan_group(table, "b", ["tcp://10.0.0.9:10912"], user="")


def test_a_cluster_has_so_many_groups_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_plans, "CLUSTER_GROUPS_MAX", 2)
    table = home()
    applied(table, plan_group(table, "b", [B], user=""))

    assert CLUSTER_GROUPS_MAX == 1_000
    with pytest.raises(ConfigError, match=r"too many groups in a cluster \(groups=2, limit=2\)"):
        plan_group(table, "c", [B], user="")


def test_the_home_leaves_as_the_last_one() -> None:
    table = home()
    applied(table, plan_group(table, "b", [B], user=""))
    with pytest.raises(ConfigError, match="leaves as the last group"):
        plan_leaving(table)
    applied(table, plan_without_group(table, "b"))

    assert plan_leaving(table) == [ClusterLeft()]
    with pytest.raises(ConfigError, match="belongs to no cluster"):
        plan_leaving(applied(table, plan_leaving(table)))


def test_a_change_that_no_document_could_carry_is_refused_before_it_is_made() -> None:
    table = home()
    at = table.at

    with pytest.raises(ConfigError, match="cluster document is too large"):
        plan_row(table, USER, {"text": "x" * (16 * 1024 * 1024)})
    assert (table.at, table.refused) == (at, "")


def test_tombstones_go_once_nobody_can_ask_for_them() -> None:
    """Otherwise those of a year would be what a document has no room for."""
    table = home()
    applied(table, plan_row(table, USER, {"n": 0}))
    applied(table, plan_row(table, USER, None))
    removed = table.at.number
    while table.at.number < removed + POINTS_KEPT - 1:
        (change,) = plan_row(table, RowKey("user", "v"), {"n": table.at.number})
        applied(table, [change])
    plan = plan_row(table, RowKey("user", "v"), {"n": -1})

    assert plan == [
        TombstonesForgotten(removed),
        RowChanged(RowKey("user", "v"), table.at.number + 1, {"n": -1}),
    ]
    assert [row.key.name for row in applied(table, plan).rows.above(0)] == ["a", "v"]


def with_group(table: ClusterTable, group: str) -> ClusterTable:
    return applied(table, plan_group(table, group, [B], user=""))


def question(table: ClusterTable, group: str, *, key: bytes = OTHER.public) -> DocumentRequest:
    """As the leader of a group asks that has all rows of ``table``."""
    chain = table.chain.signed() if table.chain else []
    return DocumentRequest(group, chain, table.rows_rank, table.at, key)


def hand_over(table: ClusterTable, group: str, *asked: DocumentRequest) -> Plan:
    return plan_handing_over(table, lambda _: KEY, group, asked)


def test_a_home_hands_over_to_who_has_all_rows_and_changes_nothing_after_it() -> None:
    table = with_group(home(), "b")
    applied(table, hand_over(table, "b", question(table, "b")))
    certificate = table.chain.greatest if table.chain else None

    assert certificate is not None
    assert (certificate.home, certificate.key, certificate.epoch) == ("b", OTHER.public, 2)
    assert (certificate.by_root, certificate.start) == (False, 2)
    assert (table.is_home, table.home) == (False, "b")
    with pytest.raises(ConfigError, match="rows of a cluster change in its home"):
        plan_row(table, USER, {})
    assert hand_over(table, "b") == [], "asked again, because nobody knew what had become of it"
    with pytest.raises(ConfigError, match="rows of a cluster change in its home"):
        hand_over(table, "a", question(table, "a"))


def test_a_home_waits_for_a_group_that_lacks_rows_or_does_not_ask() -> None:
    table = with_group(home(), "b")
    before = question(table, "b")
    applied(table, plan_row(table, USER, {"n": 1}))
    now = question(table, "b")

    for asked in ([], [before], [now._replace(rank=0)], [now._replace(group="c")]):
        with pytest.raises(BusyError, match="has not all of them yet"):
            hand_over(table, "b", *asked)
    assert len(hand_over(table, "b", before, now)) == 1


@pytest.mark.parametrize(
    ("group", "keys", "reason"),
    [
        ("c", [OTHER.public], "no group of that name"),
        ("b", [b""], "no key in common"),
        ("b", [OTHER.public, KEY.public], "no key in common"),
    ],
)
def test_what_could_be_no_home_is_refused(group: str, keys: list[bytes], reason: str) -> None:
    table = with_group(home(), "b")

    with pytest.raises(ConfigError, match=reason):
        hand_over(table, group, *[question(table, group, key=key) for key in keys])


def test_a_change_that_comes_before_the_hand_over_takes_it_back() -> None:
    table = with_group(home(), "b")
    plan = hand_over(table, "b", question(table, "b"))
    applied(table, plan_row(table, USER, {"n": 1}))
    table.apply(plan[0])

    assert "rows have changed since the next home was certified" in table.refused
    assert table.is_home


def test_the_root_key_makes_a_group_the_home_in_the_place_of_a_lost_one() -> None:
    table = ClusterTable()
    applied(table, plan_joining(table, joins("b", A), chain_of("a")))
    wanted = Certificate("c", 2, True, "b", OTHER.public, 0, b"")
    chain = [certify(ROOT, wanted).signed]
    applied(table, plan_taking_over(table, chain))

    assert (table.is_home, table.home) == (True, "b")
    assert plan_taking_over(table, chain) == []
    for wrong in (
        [certify(ROOT, wanted._replace(epoch=3, home="c")).signed],
        chain_of("a"),
        [certify(KEY, wanted._replace(epoch=3)).signed],
    ):
        with pytest.raises(ConfigError):
            plan_taking_over(table, wrong)
    with pytest.raises(ConfigError, match="join it first"):
        plan_taking_over(ClusterTable(), chain)
