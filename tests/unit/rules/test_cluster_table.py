"""Cluster table, documents and certificates: what counts, what is refused, and what is kept."""

from __future__ import annotations

import json
import zlib

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.model.names.clusters import CHAIN_LENGTH_MAX
from ledgermq.rules.cluster.certificates import Certificate, Chain, certify
from ledgermq.rules.cluster.cluster_commands import (
    ClusterJoined,
    ClusterLeft,
    DocumentTaken,
    HomeCertified,
    HomeHandedOver,
    RowChanged,
    TombstonesForgotten,
)
from ledgermq.rules.cluster.cluster_document import (
    PURPOSE,
    ROWS_SIZE_MAX,
    ClusterDocument,
    check_size,
    open_document,
    sign_document,
)
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.document_desk import DocumentDesk, DocumentReply, DocumentRequest
from ledgermq.rules.cluster.json_objects import Object
from ledgermq.rules.cluster.numbered_rows import NOWHERE, NumberedRows, RowKey
from ledgermq.rules.cluster.signatures import SigningKey, signed_content

ROOT = SigningKey(b"r" * 32)
KEYS = {name: SigningKey(name.encode() * 32) for name in "abcx"}
USER = RowKey("user", "u")


def certificate(
    home: str, epoch: int, *, signer: SigningKey = ROOT, start: int = 0, cluster: str = "c"
) -> bytes:
    wanted = Certificate(cluster, epoch, signer is ROOT, home, KEYS[home].public, start, b"")
    return certify(signer, wanted).signed


def joined(name: str, *chain: bytes) -> ClusterTable:
    table = ClusterTable()
    table.apply(ClusterJoined("c", ROOT.public, name, ["first:1"]))
    if chain:
        table.apply(HomeCertified(chain))
    assert table.refused == ""
    return table


def change(table: ClusterTable, key: RowKey, value: Object | None) -> None:
    table.apply(RowChanged(key, table.at.number + 1, value))


def home_with_rows(count: int = 3) -> ClusterTable:
    home = joined("a", certificate("a", 1))
    for name in "ab":
        change(home, RowKey("group", name), {"nodes": [f"{name}:1"]})
    for number in range(count):
        change(home, USER, {"rights": number})
    assert home.refused == ""
    return home


def asked(table: ClusterTable) -> DocumentRequest:
    assert table.chain is not None
    return DocumentRequest(table.group, table.chain.signed(), table.rows_rank, table.at)


def answered(home: ClusterTable, table: ClusterTable) -> DocumentReply:
    return DocumentDesk(home, KEYS[home.group]).answer(asked(table), is_current=True)


def keep_up(home: ClusterTable, table: ClusterTable) -> None:
    answer = answered(home, table)
    table.apply(HomeCertified(answer.chain))
    assert answer.document is not None
    table.apply(DocumentTaken(answer.document))
    assert table.refused == ""


def test_a_group_has_the_rows_of_its_home_and_then_what_has_changed() -> None:
    home, other = home_with_rows(), joined("b")
    keep_up(home, other)
    change(home, USER, None)
    change(home, RowKey("user", "v"), {"rights": 1})
    answer = answered(home, other)
    assert answer.document is not None
    document = open_document(answer.document, KEYS["a"].public)

    keep_up(home, other)

    assert [row.key.name for row in document.rows] == ["u", "v"]
    assert other.rows.value(USER) is None
    assert [*other.rows] == [*home.rows]
    assert (other.at, other.rows_rank) == (home.at, 3)
    assert answered(home, other) == answered(home, other)._replace(document=None, is_current=True)


def test_what_a_file_has_is_the_same_table() -> None:
    home, other = home_with_rows(), joined("b")
    keep_up(home, other)

    for table in (home, other, ClusterTable()):
        read = ClusterTable.read(json.loads(json.dumps(table.to_document())))

        assert read.to_document() == table.to_document()
        assert (read.is_home, read.at, read.home) == (table.is_home, table.at, table.home)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("group", ""),
        ("group", 7),
        ("root", "%"),
        ("chain", None),
        ("chain", ["AAAA"]),
        ("points", []),
        ("points", [[-1, "x"]]),
        ("rows", [["user", "u", 0, {}]]),
        ("rows", [["user", "u", 2, {}], ["user", "v", 1, {}]]),
        ("rows", [["user", "u", 1, []]]),
        ("rowsRank", True),
        ("floor", 1.5),
    ],
)
def test_a_file_of_another_shape_is_refused(key: str, value: object) -> None:
    document = {**home_with_rows().to_document(), key: value}

    with pytest.raises(ConfigError):
        ClusterTable.read(document)


def test_rows_change_in_the_home_alone() -> None:
    other = joined("b", certificate("a", 1))

    change(other, USER, {})

    assert "rows of a cluster change in its home" in other.refused
    assert other.at == NOWHERE


def test_a_document_of_somebody_else_is_refused() -> None:
    home, other = home_with_rows(), joined("b", certificate("a", 1))
    foreign = DocumentDesk(home_with_rows(), KEYS["x"])
    assert foreign.answer(asked(other), is_current=True).document is None
    content = json.dumps({"cluster": "c", "rank": 3, "base": None, "at": [0, ""], "rows": []})
    forged = KEYS["x"].signed(PURPOSE, zlib.compress(content.encode()))
    own = answered(home, other).document
    assert own is not None

    for signed in (forged, own[:-1], own[:64], b"", bytes([own[0] ^ 1]) + own[1:]):
        other.apply(DocumentTaken(signed))

        assert other.refused != ""
        assert other.at == NOWHERE


def test_a_certificate_is_no_document_and_the_other_way_round() -> None:
    signed = certificate("a", 1)

    assert signed_content(ROOT.public, b"ledgermq home certificate", signed) is not None
    assert signed_content(ROOT.public, PURPOSE, signed) is None
    assert signed_content(b"short", PURPOSE, signed) is None


def test_a_document_that_comes_twice_or_late_changes_nothing() -> None:
    home, other = home_with_rows(), joined("b", certificate("a", 1))
    first = answered(home, other).document
    assert first is not None
    keep_up(home, other)
    change(home, USER, {"rights": 9})
    second = answered(home, other).document
    assert second is not None
    keep_up(home, other)

    for signed in (first, second):
        other.apply(DocumentTaken(signed))

        assert other.refused.startswith("document does not follow")
        assert other.rows.value(USER) == {"rights": 9}


def test_whoever_was_away_while_tombstones_were_forgotten_takes_all_rows() -> None:
    home, other = home_with_rows(), joined("b")
    keep_up(home, other)
    change(home, USER, None)
    home.apply(TombstonesForgotten(home.at.number))
    answer = answered(home, other)
    assert answer.document is not None

    keep_up(home, other)

    assert open_document(answer.document, KEYS["a"].public).base is None
    assert other.rows.value(USER) is None


def test_a_home_hands_over_to_whoever_has_all_of_its_rows() -> None:
    home, heir = home_with_rows(), joined("b")
    keep_up(home, heir)
    assert home.chain is not None
    link = certificate("b", 2, signer=KEYS["a"], start=home.at.number)
    chain = [*home.chain.signed(), link]
    change(home, USER, {"rights": 7})
    home.apply(HomeHandedOver(chain))
    assert home.refused.startswith("rows have changed since")
    assert home.is_home
    keep_up(home, heir)

    link = certificate("b", 2, signer=KEYS["a"], start=home.at.number)
    home.apply(HomeHandedOver([*chain[:-1], link]))
    heir.apply(HomeCertified([*chain[:-1], link]))

    assert (home.is_home, heir.is_home, heir.rows_rank) == (False, True, 4)
    change(heir, USER, {"rights": 8})
    keep_up(heir, home)
    assert home.rows.value(USER) == {"rights": 8}


def test_nobody_hands_over_to_a_group_that_is_not_in_the_cluster() -> None:
    home = home_with_rows()
    assert home.chain is not None
    link = certificate("c", 2, signer=KEYS["a"], start=home.at.number)

    home.apply(HomeHandedOver([*home.chain.signed(), link]))

    assert home.refused == "no group of that name is in the cluster (group='c')"


def test_rows_of_a_lost_home_give_way_to_those_of_the_next_one() -> None:
    lost, heir, third = home_with_rows(), joined("b"), joined("c")
    keep_up(lost, heir)
    change(lost, USER, {"rights": "lost"})
    keep_up(lost, third)
    forced = certificate("b", 2, start=heir.at.number)
    heir.apply(HomeCertified([forced]))
    change(heir, USER, {"rights": "next"})

    keep_up(heir, third)
    keep_up(heir, lost)

    assert third.rows.value(USER) == lost.rows.value(USER) == {"rights": "next"}
    assert not lost.is_home


def test_the_root_key_wins_over_a_home_of_the_same_epoch() -> None:
    handed = [certificate("a", 1), certificate("b", 2, signer=KEYS["a"])]
    table = joined("c", *handed)
    assert table.home == "b"

    table.apply(HomeCertified([certificate("x", 2)]))
    assert table.home == "x"

    table.apply(HomeCertified(handed))
    assert (table.home, table.refused) == ("x", "")


@pytest.mark.parametrize(
    "chain",
    [
        [certificate("b", 2, signer=KEYS["a"])],
        [certificate("a", 1), certificate("b", 2, signer=KEYS["x"])],
        [certificate("a", 1), certificate("b", 3, signer=KEYS["a"])],
        [certificate("a", 1, cluster="other")],
        [certificate("a", 1), b""],
        [certificate("a", 1)] * (CHAIN_LENGTH_MAX + 1),
        [certificate("a", 1), certificate("a", 1)],
    ],
)
def test_a_chain_that_nobody_may_sign_is_refused(chain: list[bytes]) -> None:
    table = joined("c")

    table.apply(HomeCertified(chain))

    assert table.refused != ""
    assert table.home == ""


def test_of_two_homes_of_one_rank_the_first_stays_and_the_other_is_told() -> None:
    table = joined("c", certificate("a", 1))

    table.apply(HomeCertified([certificate("b", 1)]))

    assert table.home == "a"
    assert table.refused == "two homes of one epoch (epoch=1, known='a', offered='b')"


def test_two_heirs_of_one_home_are_told_apart_however_long_the_chain_is() -> None:
    first = certificate("a", 1)
    table = joined("c", first, certificate("b", 2, signer=KEYS["a"]))
    other = [first, certificate("x", 2, signer=KEYS["a"]), certificate("c", 3, signer=KEYS["x"])]

    table.apply(HomeCertified(other))

    assert table.home == "b"
    assert table.refused == "two homes of one epoch (epoch=2, known='b', offered='x')"


def test_a_home_that_has_lost_its_end_says_so_to_whoever_has_more() -> None:
    home, other = home_with_rows(4), joined("b")
    keep_up(home, other)
    shorter = home_with_rows(3)

    assert answered(shorter, other).is_parted
    late = DocumentDesk(shorter, KEYS["a"]).answer(asked(other), is_current=False)
    assert not late.is_parted

    change(shorter, USER, {"rights": "other"})
    change(shorter, USER, {"rights": "more"})
    parted = answered(shorter, other)
    assert (parted.is_parted, parted.document) == (True, None)


def test_who_is_certified_and_lacks_rows_is_no_home() -> None:
    heir = joined("b", certificate("b", 1, start=5))

    change(heir, USER, {})

    assert not heir.is_home
    assert (
        DocumentDesk(heir, KEYS["b"]).answer(asked(joined("c")), is_current=True).document is None
    )


def test_a_group_of_another_cluster_stays_where_it_is() -> None:
    table = joined("b", certificate("a", 1))

    table.apply(ClusterJoined("other", ROOT.public, "b", []))
    assert table.refused == "group belongs to another cluster (cluster='c')"

    table.apply(ClusterJoined("c", ROOT.public, "b", ["next:1"]))
    assert (table.home, [*table.first_nodes]) == ("a", ["next:1"])


def test_a_document_that_is_larger_than_it_says_is_refused() -> None:
    bomb = KEYS["a"].signed(PURPOSE, zlib.compress(b" " * (64 * 1024 * 1024)))

    with pytest.raises(ConfigError, match="too large"):
        open_document(bomb, KEYS["a"].public)


def test_points_tell_whether_another_copy_is_an_earlier_form() -> None:
    rows, other = NumberedRows(), NumberedRows()
    first = rows.change(USER, {"n": 1})
    point = rows.at
    rows.change(USER, {"n": 2})
    other.change(USER, {"n": 3})

    assert rows.has_passed(point) is True
    assert rows.has_passed(other.at) is False
    assert rows.has_passed(rows.at._replace(number=7)) is None
    assert (first.number, len(rows), len(rows.above(0))) == (1, 1, 1)
    for number in range(300):
        rows.change(USER, {"n": number})
    assert rows.has_passed(point) is None
    assert isinstance(ClusterDocument("c", 3, None, rows.at, rows.above(0)).rows, list)
    assert Chain("c", ROOT.public).greatest is None


def test_a_change_that_comes_twice_or_late_changes_nothing() -> None:
    home = home_with_rows()
    once = RowChanged(USER, home.at.number + 1, {"rights": 7})
    home.apply(once)
    at = home.at

    for late in (once, once._replace(number=at.number + 2)):
        home.apply(late)

        assert "rows have changed meanwhile" in home.refused
        assert home.at == at


def test_a_home_leaves_as_the_last_group_alone() -> None:
    home = home_with_rows()
    home.apply(ClusterLeft())
    assert "a home leaves as the last group" in home.refused
    change(home, RowKey("group", "b"), None)

    home.apply(ClusterLeft())

    assert (home.refused, home.to_document()) == ("", {})


def test_a_group_that_has_left_may_join_another_cluster() -> None:
    home, other = home_with_rows(), joined("b")
    keep_up(home, other)
    other.apply(ClusterLeft())

    other.apply(ClusterJoined("next", ROOT.public, "b", []))

    assert other.chain is not None
    assert (other.chain.cluster, other.at, other.rows_rank) == ("next", NOWHERE, 0)


def test_rows_that_no_document_could_carry_are_refused() -> None:
    home = home_with_rows()
    check_size(home.rows.above(0))
    change(home, RowKey("topic", "t"), {"text": "x" * ROWS_SIZE_MAX})

    with pytest.raises(ConfigError, match="cluster document is too large"):
        check_size(home.rows.above(0))


def test_a_document_fits_whatever_its_signer_is_called() -> None:
    rows = home_with_rows().rows
    check_size(rows.above(0))

    signed = sign_document(KEYS["a"], ClusterDocument("c", 3, None, rows.at, rows.above(0)))

    assert open_document(signed, KEYS["a"].public).at == rows.at
