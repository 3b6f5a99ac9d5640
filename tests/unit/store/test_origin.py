"""What a store directory is, by its signs, and what of it a node would lose."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from struct import Struct

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.model.names.strange_uses import STRANGE_USES, StrangeUse
from ledgermq.store import origin_files, origin_queues
from ledgermq.store.origin import (
    Mode,
    Origin,
    Product,
    UseVerdict,
    origin_of,
    refuse_hidden_queues,
    refuse_strange,
)
from tests.conftest import Golden

CHECK = Struct(">qqq")
UNIT = Struct(">qiq")
MESSAGE_MAGIC = bytes.fromhex("daa320a7")


def counts(origin: Origin) -> dict[str, int | None]:
    return {use.name: use.count for use in origin.refused}


def content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def point_elsewhere(root: Path) -> None:
    path = root / "consumequeue" / "rmq_sys_wheel_timer" / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.write(UNIT.pack(100, 319, 1))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A store as RocketMQ 4.9 makes it, with nothing in it."""
    root = tmp_path / "store"
    for folder in ("commitlog", "config", "consumequeue", "index"):
        (root / folder).mkdir(parents=True)
    return root


@pytest.mark.parametrize("name", ["gd0", "gd1.live", "gu0", "gs1", "gs1.live", "g6", "l494"])
def test_nothing_is_said_of_what_rocketmq_4_has_written(golden: Golden, name: str) -> None:
    origin = origin_of(golden(name))

    assert origin.product is Product.ROCKETMQ_4
    assert (origin.signs, origin.uses) == ((), ())
    refuse_strange(golden(name))


def test_an_empty_directory_and_none_at_all_are_no_store(tmp_path: Path) -> None:
    assert origin_of(tmp_path).product is Product.NONE
    assert origin_of(tmp_path / "absent").product is Product.NONE


@pytest.mark.parametrize(
    ("name", "lost"),
    [("p551", {"timers": 3}), ("p551v2k", {"pop": 3}), ("r551rocks", {"tables": 4})],
)
def test_what_would_be_lost_of_a_store_of_rocketmq_5_is_counted(
    golden: Golden, name: str, lost: dict[str, int]
) -> None:
    root = golden(name)
    before = content(root)
    origin = origin_of(root)

    assert (origin.product, origin.mode, counts(origin)) == (
        Product.ROCKETMQ_5,
        Mode.PLAIN,
        lost,
    )
    with pytest.raises(ConfigError) as refused:
        refuse_strange(root)
    assert refused.value.details["directory"] == str(root)
    assert refused.value.details["uses"] == lost
    assert all(use.remedy in refused.value.message for use in origin.refused)
    refuse_strange(root, left_behind=[*lost])
    assert content(root) == before


def test_members_of_a_dledger_group_are_looked_at_alike(golden: Golden) -> None:
    origin = origin_of(golden("d551-n0"), self_id="n0")

    assert (origin.mode, counts(origin)) == (Mode.DLEDGER, {"timers": 3})


def test_timers_that_were_delivered_since_are_none(golden_copy: Golden) -> None:
    root = golden_copy("p551")
    path = root / "config" / "timercheck"
    delivered, log, enqueued = CHECK.unpack_from(path.read_bytes())
    counted = {}
    for hours in (0, 1, 2, 24):
        path.write_bytes(CHECK.pack(delivered + hours * 3_600_000, log, enqueued))
        counted[hours] = counts(origin_of(root)).get("timers", 0)

    assert counted == {0: 3, 1: 2, 2: 1, 24: 0}
    kept = [use.name for use in origin_of(root).uses if use.verdict is UseVerdict.KEPT]
    assert {"timerwheel", "rocksdbstore", "config/transactionMetrics"} <= set(kept)


def test_what_the_wheel_has_not_taken_yet_waits_whatever_its_time(golden_copy: Golden) -> None:
    root = golden_copy("p551")
    path = root / "config" / "timercheck"
    path.write_bytes(CHECK.pack(1 << 50, 260, 2))

    assert counts(origin_of(root)) == {"timers": 3}


def test_a_timer_that_was_taken_back_does_not_wait() -> None:
    check = origin_queues._TimerCheck(1_000, 0, 9)
    found = origin_queues._Waiting()
    for number, properties in enumerate(
        (
            {"UNIQ_KEY": "a", "TIMER_OUT_MS": "2000", "REAL_TOPIC": "t"},
            {"UNIQ_KEY": "b", "TIMER_OUT_MS": "2000", "REAL_TOPIC": "t"},
            # It waits for longer than the wheel turns, and was put there again.
            {"UNIQ_KEY": "b", "TIMER_OUT_MS": "2000", "REAL_TOPIC": "t", "TIMER_ROLL_TIMES": "1"},
            {"UNIQ_KEY": "x", "TIMER_OUT_MS": "2000", "TIMER_DEL_UNIQKEY": "a", "REAL_TOPIC": "t"},
            {"UNIQ_KEY": "c", "TIMER_OUT_MS": "2000", "REAL_TOPIC": "t"},
            {"UNIQ_KEY": "y", "TIMER_DEL_UNIQKEY": "t+c", "REAL_TOPIC": "t"},
            {"UNIQ_KEY": "d", "TIMER_OUT_MS": "999", "REAL_TOPIC": "t"},
            {"UNIQ_KEY": "e", "TIMER_OUT_MS": "soon", "REAL_TOPIC": "t"},
        )
    ):
        origin_queues._take(found, properties, check, number)

    assert set(found.timers) - found.deleted == {"b", "e"}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda root: (root / "config" / "timercheck").unlink(), "timercheck"),
        (lambda root: (root / "config" / "timercheck").write_bytes(b"short"), "timercheck"),
        (lambda root: os.truncate(root / "commitlog" / f"{0:020d}", 0), "cannot be told"),
        (point_elsewhere, "cannot be told"),
    ],
)
def test_where_nobody_can_tell_what_waits_it_is_said_and_refused(
    golden_copy: Golden, spoil: Callable[[Path], object], said: str
) -> None:
    root = golden_copy("p551")
    spoil(root)
    refused = origin_of(root).refused

    assert {use.name: use.count for use in refused} == {"timers": None, "pop": None}
    assert all(said in use.what for use in refused)


def test_more_than_can_be_looked_at_is_refused_by_name(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin_queues, "UNITS_MAX", 4)
    assert "has 5 messages, more than 4" in origin_of(golden("p551")).refused[0].what

    monkeypatch.setattr(origin_queues, "UNITS_MAX", 1_000)
    monkeypatch.setattr(origin_queues, "SECONDS_MAX", -1.0)
    assert "not all was looked at" in origin_of(golden("p551")).refused[0].what

    monkeypatch.setattr(origin_files, "TABLE_BYTES_MAX", 100)
    refused = origin_of(golden("p551"), left_behind=["timers", "pop"]).refused
    assert [use.name for use in refused] == ["tables"]
    assert "topics.json is not looked at" in refused[0].what
    # Who leaves what its message names gets on.
    assert origin_of(golden("p551"), left_behind=["tables", "timers", "pop"]).refused == ()


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(plain: Path) -> None:
    (plain / "abort.bak").touch()
    for name in ("timercheck", "topics.json", "consumerOffset.json"):
        os.mkfifo(plain / "config" / name)
    os.mkfifo(plain / "abort")

    assert origin_of(plain).refused == ()


@pytest.mark.parametrize(
    "sign",
    [
        "rocksdbstore/CURRENT",
        "abort.bak",
        "timerwheel",
        "timerlog/00000000000000000000",
        "compaction/position-checkpoint",
        "config/timercheck",
        "config/transactionMetrics",
        "config/consumerOrderInfo.json",
        "config/messageRequestMode.json",
    ],
)
def test_a_sign_of_rocketmq_5_alone_stays_and_is_not_refused(plain: Path, sign: str) -> None:
    path = plain / sign
    path.parent.mkdir(exist_ok=True)
    path.touch()
    origin = origin_of(plain)

    assert (origin.product, origin.refused) == (Product.ROCKETMQ_5, ())
    assert len(origin.signs) == 1 and sign.startswith(origin.signs[0])


@pytest.mark.parametrize(
    ("file", "text", "is_five"),
    [
        ("abort", "", False),
        ("abort", "28071", True),
        ("config/consumerOffset.json", '{"offsetTable":{}}', False),
        ("config/consumerOffset.json", '{"groupTopicMap":{},"offsetTable":{}}', True),
        ("config/topics.json", '{"topicConfigTable":{"a":{"perm":6}}}', False),
        ("config/topics.json", '{"topicConfigTable":{"a":{"attributes":{}}}}', True),
        ("config/subscriptionGroup.json", '{"subscriptionGroupTable":{"g":{}}}', False),
        ("config/subscriptionGroup.json", "no table", False),
        (
            "config/subscriptionGroup.json",
            '{"subscriptionGroupTable":{"g":{"attributes":{}}}}',
            True,
        ),
    ],
)
def test_contents_tell_where_no_name_does(plain: Path, file: str, text: str, is_five: bool) -> None:
    (plain / file).write_text(text)

    assert (origin_of(plain).product is Product.ROCKETMQ_5) is is_five


def _files(*names: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"x")

    return make


def _table(name: str, document: object) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / "config" / name).write_text(json.dumps(document))

    return make


BATCH_TOPIC = {"topicConfigTable": {"a": {"attributes": {"queue.type": "BatchCQ"}}, "b": {}}}
STATIC = {"topicQueueMappingInfoMap": {"s": {"totalQueues": 4}}}


@pytest.mark.parametrize(
    ("make", "lost"),
    [
        (_files("config/topics/CURRENT"), {"tables": 1}),
        (_files("config/consumerOffsets/CURRENT", "consumequeue/CURRENT"), {"tables": 2}),
        (_files("metadata/CURRENT"), {"tables": 1}),
        (_files("batchconsumequeue/a/0/00000000000000000000"), {"batch": 1}),
        (_table("topics.json", BATCH_TOPIC), {"batch": 1}),
        (_files("compaction/compactionLog/a/0/00000000000000000000"), {"compacted": 1}),
        (_table("topicQueueMapping.json", STATIC), {"static": 1}),
        (_files("rocksdbstore/000012.sst"), {"rocksdb": None}),
        (_files("kvStore/000004.log"), {"rocksdb": None}),
        (_files("consumequeue/CURRENT", "timerwheel"), {"tables": 1, "timers": None}),
    ],
)
def test_each_use_is_refused_by_its_name_and_can_be_left_behind(
    plain: Path, make: Callable[[Path], None], lost: dict[str, int | None]
) -> None:
    make(plain)

    assert counts(origin_of(plain)) == lost
    with pytest.raises(ConfigError):
        refuse_strange(plain)
    refuse_strange(plain, left_behind=list(lost))


@pytest.mark.parametrize(
    ("confirmed", "is_refused"), [(200, False), (4_096, False), (0, True), (100, True), (-1, True)]
)
def test_a_controllers_log_behind_what_is_confirmed_is_refused(
    plain: Path, confirmed: int, is_refused: bool
) -> None:
    log = bytearray(4_096)
    for at in (0, 100):
        log[at : at + 8] = (100).to_bytes(4, "big") + MESSAGE_MAGIC
    (plain / "commitlog" / f"{0:020d}").write_bytes(log)
    (plain / "epochFileCheckpoint").touch()
    (plain / "checkpoint").write_bytes(bytes(32) + confirmed.to_bytes(8, "big", signed=True))
    origin = origin_of(plain)

    assert origin.mode is Mode.CONTROLLER
    assert [use.name for use in origin.refused] == ["unconfirmed"] * is_refused


@pytest.mark.parametrize(("offset", "unread"), [(None, 3), (1, 2), (3, 0), (9, 0)])
def test_messages_in_retry_topics_of_pop_are_counted_behind_the_groups_offset(
    plain: Path, offset: int | None, unread: int
) -> None:
    for topic in ("%RETRY%g_orders", "%RETRY%g_other", "%RETRY%plain"):
        folder = plain / "consumequeue" / topic / "0"
        folder.mkdir(parents=True)
        units = b"".join(UNIT.pack(number * 100, 100, 1) for number in range(3))
        (folder / f"{0:020d}").write_bytes(units.ljust(4_000, b"\0"))
    (plain / "abort.bak").touch()
    _table("topics.json", {"topicConfigTable": {"orders": {}, "other": {}}})(plain)
    # A group may be called like that, too, and its retries are read here.
    groups = {"g": {}, "g_other": {}, "plain": {}}
    _table("subscriptionGroup.json", {"subscriptionGroupTable": groups})(plain)
    offsets = {} if offset is None else {"%RETRY%g_orders@g": {"0": offset}}
    _table("consumerOffset.json", {"offsetTable": offsets})(plain)

    assert counts(origin_of(plain)) == ({"pop": unread} if unread else {})


def test_a_store_that_is_ours_is_not_asked_again_until_rocketmq_5_has_had_it(
    golden_copy: Golden,
) -> None:
    root = golden_copy("p551")
    own = root / "ledgermq"
    own.mkdir()
    (own / "keys").mkdir()
    (own / "dispatch-checkpoint").touch()
    before = origin_of(root).product
    (own / "term").touch()
    ours = origin_of(root)
    check = root / "config" / "timercheck"
    later = (own / "term").stat().st_mtime_ns + 1_000_000_000
    os.utime(check, ns=(later, later))

    assert before is Product.ROCKETMQ_5
    assert (ours.product, ours.uses) == (Product.OURS, ())
    assert counts(origin_of(root)) == {"timers": 3}


def test_queues_that_nobody_here_can_read_are_refused_to_who_reads_them(
    golden: Golden, plain: Path
) -> None:
    refuse_hidden_queues(golden("p551"))
    refuse_hidden_queues(golden("gd0"))
    with pytest.raises(ConfigError, match="RocksDB"):
        refuse_hidden_queues(golden("r551rocks"))
    _files("batchconsumequeue/a/0/00000000000000000000")(plain)
    with pytest.raises(ConfigError, match="batches"):
        refuse_hidden_queues(plain)
    shutil.rmtree(plain / "batchconsumequeue")
    refuse_hidden_queues(plain)


def test_each_use_has_a_remedy_and_a_place_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operating" / "rocketmq5.md").read_text()

    assert [name for name in STRANGE_USES if f"| `{name}` |" not in page] == []
    assert len(STRANGE_USES) == len(StrangeUse)
