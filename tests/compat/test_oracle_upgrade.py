"""RocketMQ judges upgrades and downgrades: it serves every message where it was."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.store.store_view import StoreView
from tests.compat.dump_checks import (
    FILE_SIZES,
    INDEX_SIZES,
    NOT_IN_TOPICS,
    Json,
    Way,
    by_place,
    check_new_messages,
    without_bounds,
)
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.compat.test_oracle import check_consumer_gets_old_messages, golden_data
from tests.compat.varied_load import varied_load
from tests.process.conftest import SOURCES, Node

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

MESSAGES_EACH = 2_000
SIZES = {
    "mapped_file_size_commit_log": FILE_SIZES["mappedFileSizeCommitLog"],
    "mapped_file_size_consume_queue": FILE_SIZES["mappedFileSizeConsumeQueue"],
    "max_hash_slot_num": INDEX_SIZES["maxHashSlotNum"],
    "max_index_num": INDEX_SIZES["maxIndexNum"],
}

HALF = "preparedTransactionOffset"

Place = tuple[str, int, int]
"""Topic and queue where a message was read, and its queue offset."""


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Iterator[Node]:
    oracle_program()
    yield make_node()


def converted(verb: str, root: Path, *words: str) -> Json:
    done = subprocess.run(
        [sys.executable, "-m", "ledgermq.cli.main", "store", verb, str(root), "--json", *words],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SOURCES)},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    facts: Json = json.loads(done.stdout)
    return facts


def dump_of(store: Path, folder: Path, *, plain: bool) -> Json:
    """What the real broker serves of a copy of ``store``."""
    settings = INDEX_SIZES | FILE_SIZES
    with rocketmq_serving(store, folder / "java", plain=plain, settings=settings) as broker:
        dump: Json = broker.dump(folder / "dump.json")
    return dump


def serve(node: Node, store: Path, kind: str) -> None:
    node.root = store
    node.configure(
        node={"self_id": "n0"},
        store={**SIZES, "path_root_dir": str(store), "log": kind},
        ack={"mode": "majority-memory"},
    )
    node.serve()


def by_queue_offset(messages: list[Json]) -> dict[Place, Json]:
    return {(m["readTopic"], m["readQueue"], m["queueOffset"]): m for m in messages}


def check_served(answers: Json, dump: Json, *, moved: bool) -> None:
    """All that ``answers`` name is in ``dump`` at its queue offset, and is found by key and time.

    Args:
        moved: messages have new positions, and ids that are made of them.
    """
    before, now = by_queue_offset(answers["messages"]), by_queue_offset(dump["messages"])
    of_place = {"physicalOffset", "offsetMsgId", HALF} if moved else set()
    places = {message["physicalOffset"]: at for at, message in before.items()}
    for at, said in before.items():
        fields = said.keys() - of_place
        if moved and said["msgId"] == said["offsetMsgId"]:
            fields -= {"msgId"}
        old, new = without_bounds(said), without_bounds(now[at])

        assert {key: new[key] for key in fields} == {key: old[key] for key in fields}, at
        # The message that a transaction was begun with: the same one, where it is now.
        half = places.get(old.get(HALF))
        assert new.get(HALF) == (old.get(HALF) if half is None else now[half]["physicalOffset"])

    assert len(before) == len(answers["messages"])
    bounds = {(queue["topic"], queue["queue"]): queue for queue in dump["queues"]}
    for queue in answers["queues"]:
        found = bounds[queue["topic"], queue["queue"]]

        assert found["min"] == queue["min"]
        assert found["max"] >= queue["max"]
    check_keys(answers, dump)
    same_as_then = {
        (queue["topic"], queue["queue"])
        for queue in answers["queues"]
        if queue["max"] == bounds[queue["topic"], queue["queue"]]["max"]
    }
    for query in dump["timeQueries"]:
        queue = (query["topic"], query["queue"])
        if queue not in same_as_then:
            # Messages that were delayed have come since, and one of them is nearer.
            continue
        same = [
            one["offset"]
            for one in answers["timeQueries"]
            if (one["topic"], one["queue"], one["timestamp"]) == (*queue, query["timestamp"])
        ]

        assert set(same) <= {query["offset"]}, query


def check_keys(answers: Json, dump: Json) -> None:
    """A key finds at least the messages that it found before."""
    places = {m["physicalOffset"]: at for at, m in by_queue_offset(answers["messages"]).items()}
    now = {at: m["physicalOffset"] for at, m in by_queue_offset(dump["messages"]).items()}
    asked = {(query["topic"], query["key"]): query for query in dump["keyQueries"]}
    compared = 0
    for query in answers["keyQueries"]:
        again = asked.get((query["topic"], query["key"]))
        if again is None:
            continue
        compared += 1
        known = {now[places[at]] for at in query["physicalOffsets"] if at in places}

        assert known <= set(again["physicalOffsets"]), query

    assert compared


def test_rocketmq_serves_a_store_that_we_upgraded(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    oracle_program()
    store, answers = golden_data("gs1", request)
    converted("upgrade", store, "--group", "oracle", "--self-id", "n0")

    check_served(answers, dump_of(store, tmp_path, plain=False), moved=False)


def test_rocketmq_serves_what_a_node_of_ours_added_to_an_upgraded_store(
    node: Node, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store, answers = golden_data("gs1", request)
    converted("upgrade", store, "--group", "oracle", "--self-id", "n0")
    serve(node, store, "dledger")
    with varied_load(f"ipc://{node.runtime}", tmp_path, each=MESSAGES_EACH) as load:
        sent = load.told([node.log])

    assert node.stop() == 0
    dump = dump_of(store, tmp_path, plain=False)
    check_served(answers, dump, moved=False)
    check_new_messages(Way(answers, [], sent, store, dump, tmp_path), by_place(dump["messages"]))


@pytest.mark.parametrize("name", ["gd0", "gu0"])
def test_rocketmq_serves_a_store_that_we_downgraded(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    oracle_program()
    store, answers = golden_data(name, request)
    converted("downgrade", store)

    check_served(answers, dump_of(store, tmp_path, plain=True), moved=True)


def test_rocketmq_serves_a_store_of_our_own_after_its_downgrade(node: Node, tmp_path: Path) -> None:
    serve(node, tmp_path / "store", "dledger")
    with varied_load(f"ipc://{node.runtime}", tmp_path, each=MESSAGES_EACH) as load:
        sent = load.told([node.log])

    assert node.stop() == 0
    facts = converted("downgrade", node.root)
    assert facts["messages"] == len(sent)
    dump = dump_of(node.root, tmp_path, plain=True)
    now = by_queue_offset(dump["messages"])
    told = {(m["readTopic"], m["readQueue"], m["queueOffset"]): m for m in sent}
    assert told.keys() == now.keys()
    for at, message in told.items():
        fields = message.keys() - {"born", "physicalOffset", "offsetMsgId"}

        assert {key: without_bounds(now[at])[key] for key in fields} == {
            key: message[key] for key in fields
        }
    with closing(StoreView(node.root)) as view:
        assert {queue.topic for queue in view.queues()} == {at[0] for at in told}


def test_we_serve_a_store_that_rocketmq_upgraded(
    node: Node, request: pytest.FixtureRequest
) -> None:
    store, answers = golden_data("gu0", request)
    topics = {path.name for path in (store / "consumequeue").iterdir()} - NOT_IN_TOPICS
    serve(node, store, "dledger")
    check_consumer_gets_old_messages(node, answers, topics)

    assert node.stop() == 0
    assert not node.logged("ERROR"), node.log.read_text()
