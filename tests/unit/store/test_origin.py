"""What a store directory is, by its signs, and what of it a node would lose."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.model.names.strange_uses import STRANGE_USES, StrangeUse
from ledgermq.store import origin, origin_files, origin_queues
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

CHECK = Struct(">qqqq")
UNIT = Struct(">qiq")
MESSAGE_MAGIC = bytes.fromhex("daa320a7")


def counts(origin: Origin) -> dict[str, int | None]:
    return {use.name: use.count for use in origin.refused}


def taken(origin: Origin) -> dict[str, int]:
    """What a node takes over, and how much of it."""
    found = [use for use in origin.uses if use.verdict is UseVerdict.TAKEN]
    return {
        use.name: use.count for use in found if use.count is not None and use.name in STRANGE_USES
    }


def timers(origin: Origin) -> int:
    return taken(origin).get(StrangeUse.TIMERS, 0)


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
    [("r551rocks", {"tables": 4})],
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


@pytest.mark.parametrize(
    ("name", "mode"), [("p551", Mode.PLAIN), ("d551-n0", Mode.DLEDGER), ("d551-n1", Mode.DLEDGER)]
)
def test_timers_that_wait_are_counted_and_taken(golden: Golden, name: str, mode: Mode) -> None:
    origin = origin_of(golden(name), self_id=name.partition("-")[2] or None)

    assert (origin.mode, counts(origin), taken(origin)) == (mode, {}, {"timers": 3})


def test_settings_of_rocketmq_5_that_nothing_here_goes_by_are_named(golden: Golden) -> None:
    found = [use for use in origin_of(golden("p551")).uses if use.verdict is UseVerdict.UNHEEDED]
    rows = {use.name.rpartition(": ")[2]: use.count for use in found}

    assert rows == {
        "groupRetryPolicy": 1,
        "consumeMessageOrderly": 1,
    }
    assert "groupRetryPolicy of 1 (g5-policy)" in next(
        use.what for use in found if use.name.endswith("groupRetryPolicy")
    )


def test_an_attribute_that_is_obeyed_is_told_as_taken_and_a_usual_one_not_at_all(
    plain: Path,
) -> None:
    attributes = {
        "a": {"reserve.time": "3600"},
        "b": {"+reserve.time": "-1", "cleanup.policy": "DELETE", "queue.type": "SimpleCQ"},
        "c": {"message.type": "FIFO"},
        "d": {"message.type": "LITE"},
    }
    rows = {name: {"attributes": one} for name, one in attributes.items()}
    _table("topics.json", {"topicConfigTable": rows})(plain)
    uses = {use.what: use.verdict for use in origin_of(plain).uses if "topics.json: " in use.what}
    uses = {what: verdict for what, verdict in uses.items() if "=" in what}

    assert uses == {
        "topics.json: reserve.time=3600 of 1 (a): hours that sealed pieces keep it"
        " (ledgermq piece prune)": UseVerdict.TAKEN,
        "topics.json: reserve.time=-1 of 1 (b)": UseVerdict.UNHEEDED,
        "topics.json: message.type=FIFO of 1 (c): gRPC clients may send nothing else, as with"
        " RocketMQ's proxy": UseVerdict.TAKEN,
        "topics.json: message.type=LITE of 1 (d)": UseVerdict.UNHEEDED,
    }


def test_what_rocketmq_leaves_of_a_compacted_topic_that_was_deleted_is_no_use(
    plain: Path,
) -> None:
    for topic in ("deleted", "policy-changed"):
        _files(f"compaction/compactionLog/{topic}/0/{0:020d}")(plain)
    _table("topics.json", {"topicConfigTable": {"policy-changed": {"attributes": {}}}})(plain)
    (found,) = [use for use in origin_of(plain).uses if use.name == "compacted"]

    assert (found.verdict, found.count) == (UseVerdict.TAKEN, 1)
    assert "(policy-changed)" in found.what


def test_lite_topics_are_named_with_their_number(plain: Path) -> None:
    (plain / "abort.bak").touch()
    for name in ("%LMQ%$orders$a", "%LMQ%$orders$b$c", "%LMQ%$returns$a", "%LMQ%plain", "orders"):
        (plain / "consumequeue" / name / "0").mkdir(parents=True)
    (found,) = [use for use in origin_of(plain).uses if use.verdict is UseVerdict.UNHEEDED]

    assert (found.name, found.count) == ("consumequeue/%LMQ%$…", 3)
    assert found.what.startswith("3 lite topics of 2 topics (orders, returns)")


def test_what_pop_has_in_flight_is_counted_and_taken(golden: Golden) -> None:
    origin = origin_of(golden("p551v2k"))

    assert (counts(origin), taken(origin)) == ({}, {"pop": 3})


def test_timers_that_were_delivered_since_are_none(golden_copy: Golden) -> None:
    root = golden_copy("p551")
    path = root / "config" / "timercheck"
    delivered, log, enqueued, _ = CHECK.unpack_from(path.read_bytes())
    counted = {}
    for hours in (0, 1, 2, 24):
        path.write_bytes(CHECK.pack(delivered + hours * 3_600_000, log, enqueued, enqueued))
        counted[hours] = timers(origin_of(root))

    assert counted == {0: 3, 1: 2, 2: 1, 24: 0}
    kept = [use.name for use in origin_of(root).uses if use.verdict is UseVerdict.KEPT]
    assert {"timerwheel", "rocksdbstore", "config/transactionMetrics"} <= set(kept)


def test_what_the_wheel_has_not_taken_yet_waits_whatever_its_time(golden_copy: Golden) -> None:
    root = golden_copy("p551")
    path = root / "config" / "timercheck"
    path.write_bytes(CHECK.pack(1 << 50, 260, 2, 2))

    assert timers(origin_of(root)) == 3


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


def test_more_than_can_be_looked_at_is_named(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin_queues, "UNITS_MAX", 4)
    origin = origin_of(golden("p551"))
    assert origin.refused == ()
    assert "has 5 messages, more than 4" in origin.uses[0].what

    monkeypatch.setattr(origin_queues, "UNITS_MAX", 1_000)
    monkeypatch.setattr(origin_queues, "SECONDS_MAX", -1.0)
    assert "not all was looked at" in origin_of(golden("p551")).uses[0].what

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


COMPACTED = {"topicConfigTable": {"c": {"attributes": {"cleanup.policy": "COMPACTION"}}}}
BATCH_TOPIC = {"topicConfigTable": {"a": {"attributes": {"queue.type": "BatchCQ"}}, "b": {}}}
STATIC = {"topicQueueMappingInfoMap": {"s": {"totalQueues": 4}}}


@pytest.mark.parametrize(
    ("make", "lost"),
    [
        (_files("config/topics/CURRENT"), {"tables": 1}),
        (_files("config/consumerOffsets/CURRENT", "consumequeue/CURRENT"), {"tables": 2}),
        (_files("config/metadata/CURRENT"), {"tables": 1}),
        (_files("config/rdb/000012.sst"), {"tables": 1}),
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
    ("make", "taken"),
    [
        (_files("batchconsumequeue/a/0/00000000000000000000"), ("batch", 1)),
        (_table("topics.json", BATCH_TOPIC), ("batch", 1)),
        (_files("compaction/compactionLog/a/0/00000000000000000000"), ("compacted", 1)),
        (_table("topics.json", COMPACTED), ("compacted", 1)),
    ],
)
def test_batch_and_compacted_topics_are_taken_and_told_with_their_number(
    plain: Path, make: Callable[[Path], None], taken: tuple[str, int]
) -> None:
    make(plain)
    found = origin_of(plain)
    refuse_strange(plain)

    assert found.refused == ()
    told = [(use.name, use.count) for use in found.uses if use.verdict is UseVerdict.TAKEN]
    assert taken in told


EPOCHS = b"2\n0\n1-0\n4-100\n"


@pytest.fixture
def controlled(plain: Path) -> Path:
    """A store of controller mode with two records of 100 bytes."""
    log = bytearray(4_096)
    for at in (0, 100):
        log[at : at + 8] = (100).to_bytes(4, "big") + MESSAGE_MAGIC
    (plain / "commitlog" / f"{0:020d}").write_bytes(log)
    (plain / "epochFileCheckpoint").write_bytes(EPOCHS)
    (plain / "brokerIdentity").touch()
    confirm(plain, 200)
    return plain


def confirm(root: Path, position: int) -> None:
    (root / "checkpoint").write_bytes(bytes(32) + position.to_bytes(8, "big", signed=True))


@pytest.mark.parametrize(
    ("confirmed", "behind", "size"),
    [(200, 0, 0), (150, 1, 50), (100, 1, 100), (0, 2, 200), (-1, 2, 200)],
)
def test_a_controllers_log_is_taken_and_what_is_not_confirmed_is_said(
    controlled: Path, confirmed: int, behind: int, size: int
) -> None:
    confirm(controlled, confirmed)
    origin = origin_of(controlled)

    assert (origin.mode, counts(origin)) == (Mode.CONTROLLER, {})
    assert taken(origin) == ({"unconfirmed": behind} if behind else {})
    if behind:
        said = f"epoch 4 goes on behind the confirmed offset {max(0, confirmed)}, with {size} bytes"
        assert said in origin.uses[0].what


def shorter(root: Path) -> None:
    path = root / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:100].ljust(4_096, b"\0"))
    confirm(root, 60)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda root: confirm(root, 201), "the log ends at 200, and was confirmed up to 201"),
        (lambda root: confirm(root, 1 << 62), "the log ends at 200"),
        (lambda root: (root / "checkpoint").write_bytes(b"short"), "does not say what is"),
        (lambda root: (root / "epochFileCheckpoint").unlink(), "no file of epochs"),
        (
            lambda root: (root / "epochFileCheckpoint").write_bytes(b"1\n0\n4-100\n5-900\n"),
            "no whole file of epochs",
        ),
        (
            lambda root: (root / "epochFileCheckpoint").write_bytes(b"1\n1\n1-0\n"),
            "no whole file of epochs",
        ),
        (
            lambda root: (root / "epochFileCheckpoint").write_bytes(b"2\n0\n4-100\n1-0\n"),
            "do not follow one another",
        ),
        (
            lambda root: (root / "epochFileCheckpoint").write_bytes(b"1\n0\n7-300\n"),
            "in epoch 7, which begins at 300",
        ),
        (shorter, "the log ends at 100, and was confirmed up to 60, in epoch 4"),
        (lambda root: os.truncate(root / "commitlog" / f"{0:020d}", 4), "the log ends at"),
    ],
)
def test_a_controllers_log_that_lacks_something_is_refused(
    controlled: Path, spoil: Callable[[Path], object], said: str
) -> None:
    if said == "the log ends at 100, and was confirmed up to 60, in epoch 4":
        (controlled / "epochFileCheckpoint").write_bytes(b"1\n0\n4-150\n")
    spoil(controlled)
    refused = origin_of(controlled).refused

    assert {use.name: use.count for use in refused} == {"unconfirmed": None}
    assert said in refused[0].what
    assert origin_of(controlled, left_behind=["unconfirmed"]).refused == ()


def test_the_epochs_before_are_read_where_a_stop_has_torn_the_file(controlled: Path) -> None:
    (controlled / "epochFileCheckpoint.bak").write_bytes(EPOCHS)
    (controlled / "epochFileCheckpoint").write_bytes(EPOCHS[:7])

    assert counts(origin_of(controlled)) == {}


def test_a_controllers_log_that_is_long_is_taken_uncounted(
    controlled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm(controlled, 0)
    monkeypatch.setattr(origin, "RECORDS_MAX", 1)
    found = origin_of(controlled)

    assert (counts(found), taken(found)) == ({}, {"unconfirmed": 1})
    assert ", with at least 100 bytes" in found.uses[0].what


@pytest.mark.parametrize(("offset", "unread"), [(None, None), (1, 2), (3, 0), (9, 0)])
def test_messages_in_retry_topics_of_pop_are_counted_behind_the_groups_offset(
    plain: Path, offset: int | None, unread: int | None
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

    origin = origin_of(plain)
    # Without an offset of its group nobody knows what was consumed.
    assert counts(origin) == ({"pop": None} if unread is None else {})
    assert taken(origin) == ({"pop": unread} if unread else {})


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
    assert timers(origin_of(root)) == 3


def test_queues_that_nobody_here_can_read_are_refused_to_who_reads_them(
    golden: Golden, plain: Path
) -> None:
    refuse_hidden_queues(golden("p551"))
    refuse_hidden_queues(golden("gd0"))
    with pytest.raises(ConfigError, match="RocksDB"):
        refuse_hidden_queues(golden("r551rocks"))
    _files("batchconsumequeue/a/0/00000000000000000000")(plain)
    refuse_hidden_queues(plain)


def test_each_use_has_a_remedy_and_a_place_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operating" / "rocketmq5.md").read_text()

    assert [name for name in STRANGE_USES if f"| `{name}` |" not in page] == []
    assert len(STRANGE_USES) == len(StrangeUse)
