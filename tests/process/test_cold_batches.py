"""Batch topics of RocketMQ 5 whose first messages are in pieces alone: read, restored, as rows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import left_out

if reason := left_out.without_spark(needs_java=False):
    pytest.skip(reason, allow_module_level=True)

import pyarrow.parquet as pq

from ledgermq.cli.main import main
from ledgermq.client import Consumer, MessageFilter
from ledgermq.formats.records.message import INNER_BATCH
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.errors import LedgerError
from ledgermq.model.exit_status import EXIT_CONFIG
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.source.piece_source import PieceSource
from ledgermq.pipeline.source.replica_source import ReplicaSource
from ledgermq.pipeline.source.row_source import RowSource
from ledgermq.pipeline.source.store_source import StoreSource
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.process.batch_store import FILE_SIZE, TOPIC, Stored, write_batch_store
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import Member, free_port
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import beat, messages_of, offset_fields, pull_fields
from tests.process.test_cold_reads import seal
from tests.process.test_damaged_rocketmq_5 import (
    PARTS_OF_BATCHES,
    SEED,
    archive_batches,
    damage,
    in_time,
)
from tests.process.test_delivery import received
from tests.process.test_retention import set_retention
from tests.row_batches import batches_of, walked_batches
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

DRAWS = 40
STORE = {
    "log": "commitlog",
    "mapped_file_size_commit_log": FILE_SIZE,
    "mapped_file_size_consume_queue": 4_000,
    "max_hash_slot_num": 500,
    "max_index_num": 400,
}


class ColdBatches:
    """A node whose first messages of a batch topic are in pieces alone."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.place = node.folder / "pieces"
        self.stored = write_batch_store(node.root)
        port = free_port()
        self.port = f"127.0.0.1:{port}"
        node.configure(
            store=STORE, node={"self_id": "n7", "listen_port": port},
            listen={"remoting": self.port}, access={"admin_over_clients": True},
            cold={"place": str(self.place), "refresh_s": 1, "wait_ms": 4_000},
        )  # fmt: skip
        node.serve()
        seal(node, self.place)
        set_retention(Member(node, "n7"), bytes_max="1MiB")
        with CursorPage.attach(node.runtime / "cursors") as page:
            wait_until(lambda: page.read_log_begin().position > 0, "files to go", PATIENCE_S)

    def alone_and_among(self) -> tuple[int, int]:
        """A queue offset whose message is a record by itself, and one that is among others."""
        columns = ["topic", "queueOffset", "sysFlag", "properties"]
        path = sorted((self.place / "pieces").iterdir())[0]
        alone = among = -1
        for row in pq.read_table(path, columns=columns).to_pylist():
            if row["topic"] != TOPIC:
                continue
            if not row["sysFlag"] & INNER_BATCH:
                alone = row["queueOffset"]
            elif int(dict(row["properties"])["INNER_NUM"]) > 1:
                among = row["queueOffset"] + 1
        return alone, among

    def files(self) -> int:
        return len(list((self.node.root / "commitlog").iterdir()))


@pytest.fixture(scope="module")
def cold() -> Iterator[ColdBatches]:
    with nodes_made(Node) as make:
        yield ColdBatches(make())


def rows_of(source: RowSource) -> list[Stored]:
    """What Spark's tasks get of the batch topic's queue, by offset."""
    columns = ["queueOffset", "body", "tags", "properties", "crcOk"]
    found: list[Stored] = []
    with closing(source):
        range_ = source.bounds([(TOPIC, 0)])[TOPIC, 0]
        ranges = [range_] if range_.first < range_.end else []
        for part in source.plan(ranges, split_bytes=1 << 20, splits_min=3) if ranges else ():
            read = source.read(part, fail_on_data_loss=True)
            for batch in batches_of(read, columns, RowFilter(), inflate=True):
                found += [
                    Stored(
                        row["queueOffset"], row["body"], row["tags"],
                        dict(row["properties"]).get("number", ""),
                    )
                    for row in batch.to_pylist()
                    if row["crcOk"]
                ]  # fmt: skip
    return sorted(found)


def test_consumers_get_each_message_of_a_batch_that_the_log_has_no_more(
    cold: ColdBatches,
) -> None:
    found = received(cold.node.address, TOPIC, len(cold.stored))

    assert cold.files() < 12
    assert [(one.queue_offset, bytes(one.body), one.tag) for one in found] == [
        one[:3] for one in cold.stored
    ]
    assert cold.node.status()["counters"]["cold"]["pulls"] > 0


@pytest.mark.parametrize(
    ("filter_", "is_wanted"),
    [
        (MessageFilter.by_tags("red"), lambda one: one.tag == "red"),
        (MessageFilter.by_tags("red || green"), lambda one: True),
        (
            MessageFilter.by_sql("number BETWEEN 20 AND 40 OR TAGS = 'green' AND number > 500"),
            lambda one: (
                20 <= int(one.number) <= 40 or (one.tag == "green" and int(one.number) > 500)
            ),
        ),
    ],
    ids=["tag", "tags", "sql"],
)
def test_filters_choose_among_the_messages_of_a_record_in_pieces_and_log(
    cold: ColdBatches, filter_: MessageFilter, is_wanted: Callable[[Stored], bool]
) -> None:
    expected = [one.queue_offset for one in cold.stored if is_wanted(one)]
    found: list[int] = []
    with Consumer(cold.node.address, topic=TOPIC, start="first", filter=filter_) as consumer:
        while len(found) < len(expected):
            batch = consumer.poll(PATIENCE_S)
            assert len(batch)
            found += [message.queue_offset for message in batch]
        assert not list(consumer.poll(0.3))
        assert not consumer.resets

    assert found == expected


def test_rocketmqs_clients_may_begin_in_the_middle_of_a_sealed_record(cold: ColdBatches) -> None:
    client = RemotingClient(cold.port)
    beat(client, "one", TOPIC)
    begin = client.ask(RequestCode.GET_MIN_OFFSET, offset_fields(TOPIC, 0)).fields["offset"]
    firsts = []
    for offset in range(20):

        def answered(offset: int = offset) -> int | None:
            reply = client.ask(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, 0, offset))
            if reply.code != ResponseCode.SUCCESS:
                return None
            return messages_of(reply)[0].queue_offset + 1

        firsts.append(wait_until(answered, "an answer", PATIENCE_S) - 1)
    client.close()

    assert begin == "0"
    assert firsts == list(range(20))


def test_a_message_that_is_in_one_record_with_others_is_not_deleted_of_pieces(
    cold: ColdBatches, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--from", str(cold.place), "--dry-run"]
    alone, among = cold.alone_and_among()

    assert main(["piece", "delete", TOPIC, "0", str(among), *words]) == EXIT_CONFIG
    assert "in one record with others" in capsys.readouterr().err
    assert main(["piece", "delete", TOPIC, "0", str(alone), *words]) == 0
    assert "1 messages would be deleted" in capsys.readouterr().out


def test_a_record_of_several_goes_as_a_whole_where_that_is_said_and_verify_proves_it(
    cold: ColdBatches, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "pieces"
    shutil.copytree(cold.place, place)
    alone, among = cold.alone_and_among()
    words = ["--from", str(place), "--with-batch", "--yes", "--reason", "case 19"]

    assert main(["piece", "delete", TOPIC, "0", str(alone), *words]) == 0
    assert main(["piece", "verify", str(place)]) == 0
    capsys.readouterr()
    assert main(["piece", "delete", TOPIC, "0", str(among), *words]) == 0
    assert "1 records are in no piece any more" in capsys.readouterr().out
    left = {one.queue_offset for one in rows_of(PieceSource(str(place)))}
    gone = sorted({one.queue_offset for one in cold.stored} - left)
    assert {alone, among} <= set(gone)
    several = [offset for offset in gone if offset != alone]
    assert 1 < len(several) <= 5
    assert several == list(range(several[0], several[-1] + 1))
    assert main(["piece", "verify", str(place)]) == 0


def test_spark_reads_pieces_and_the_log_behind_them_message_by_message(cold: ColdBatches) -> None:
    place = str(cold.place)

    assert rows_of(PieceSource(place)) == cold.stored
    both = rows_of(PieceSource(place, store=StoreSource(cold.node.root)))
    assert both == cold.stored
    live = rows_of(StoreSource(cold.node.root))
    assert 0 < len(live) < len(cold.stored)
    assert live == cold.stored[-len(live) :]


def test_what_is_restored_of_pieces_has_the_same_queues(
    cold: ColdBatches, make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str]
) -> None:
    again = make_node()
    again.configure(store=STORE, node={"self_id": "n8"})
    assert main(["backup", "verify", str(cold.place)]) == 0
    assert main(["backup", "restore", str(cold.place), str(again.root)]) == 0
    assert rows_of(StoreSource(again.root)) == cold.stored
    capsys.readouterr()
    assert main(["store", "check", str(again.root)]) == 0, capsys.readouterr().out
    again.serve()
    found = received(again.address, TOPIC, len(cold.stored))

    assert again.stop() == 0
    assert [(one.queue_offset, bytes(one.body)) for one in found] == [
        one[:2] for one in cold.stored
    ]


def test_a_directory_is_read_by_its_queues_by_several_replicas_and_without_queues(
    tmp_path: Path,
) -> None:
    roots = [tmp_path / name for name in ("one", "other", "bare")]
    stored = [write_batch_store(root, records=60) for root in roots].pop()
    for root in roots[:2]:
        assert main(["store", "rebuild", str(root)]) == 0
    # The second one has a batch only in which the first has none.
    log = sorted((roots[0] / "commitlog").iterdir())[1]
    log.write_bytes(bytes(FILE_SIZE))
    source = StoreSource(roots[2])
    bounds = source.walk_bounds()
    walked = [
        (row["queueOffset"], row["body"])
        for batch in walked_batches(
            source.walk(bounds[0], bounds[-1]), ["topic", "queueOffset", "body"], RowFilter(),
            inflate=True,
        )
        for row in batch.to_pylist()
        if row["topic"] == TOPIC
    ]  # fmt: skip
    source.close()

    assert rows_of(StoreSource(roots[1])) == stored
    assert rows_of(ReplicaSource(roots[:2])) == stored
    assert walked == [one[:2] for one in stored]


@pytest.mark.long
def test_damaged_directories_are_read_or_told(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    archive_batches(tmp_path / "whole")
    outcomes = set[str]()
    for number in range(DRAWS):
        root = tmp_path / f"damaged-{number}"
        shutil.copytree(tmp_path / "whole", root)
        done = damage(root, chance, PARTS_OF_BATCHES)
        for make in (lambda root=root: StoreSource(root), lambda root=root: ReplicaSource([root])):
            try:
                with in_time():
                    source = make()
                    outcomes.add(f"{len(rows_of(source)) > 0}")
            except LedgerError as error:
                outcomes.add(type(error).__name__)
                assert error.details or error.message, done

    assert {"True", "CorruptLogError"} <= outcomes
