"""RocketMQ takes over a store in which transactions of ours have ended, or wait for their end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client import TransactionalProducer
from ledgermq.model.names.transactions import UNANSWERED_TOPIC
from ledgermq.store.store_view import StoreView
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until

START_S = 150.0
JAVA_SETTINGS = {
    "mappedFileSizeCommitLog": 1_048_576,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 400,
    # It goes over what waits every second, asks once, and puts aside what nobody answers for.
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 100,
    "transactionCheckMax": 3,
}


def asked_twice(node: Node) -> None:
    """Until the messages of the transaction that is left open were put again twice."""

    def is_asked() -> bool:
        view = StoreView(node.root)
        try:
            rows = [q.message for q in view.messages("RMQ_SYS_TRANS_HALF_TOPIC", None)]
        finally:
            view.close()
        times = [row.parsed_properties().get("TRANSACTION_CHECK_TIMES") for row in rows]
        return times.count("2") >= 2

    wait_until(is_asked, "two questions")


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("log", ["dledger", "commitlog"])
def test_rocketmq_asks_for_what_waits_and_for_nothing_else(
    log: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    node = make_node()
    rules = {
        "transaction_timeout_ms": 50,
        "transaction_check_interval_ms": 500,
        "transaction_check_max": 100,
    }
    start_client_node(node, log=log, transactions=rules)
    with TransactionalProducer(f"ipc://{node.runtime}", group="till") as producer:
        for number in range(5):
            with producer.transaction() as kept:
                kept.send("orders", b"kept %d" % number)
                kept.send("other", b"kept %d" % number)
            dropped = producer.transaction()
            dropped.send("orders", b"dropped").result()
            dropped.rollback()
        left = producer.transaction()
        left.send("orders", b"left 0").result()
        left.send("other", b"left 1").result()
        left.leave_open()
        asked_twice(node)
        after = producer.transaction()
        after.send("orders", b"dropped").result()
        after.rollback()
    assert node.stop() == 0

    def put_aside(store: Path) -> list[bytes]:
        if not (store / "consumequeue" / UNANSWERED_TOPIC).exists():
            return []
        view = StoreView(store)
        try:
            rows = view.messages(UNANSWERED_TOPIC, None)
            return sorted(bytes(row.message.body) for row in rows)
        finally:
            view.close()

    with rocketmq_serving(
        node.root,
        tmp_path / "java",
        plain=log == "commitlog",
        settings=JAVA_SETTINGS,
        self_id="n7",
    ) as broker:
        wait_until(lambda: len(put_aside(broker.store)) >= 2, "its last question", START_S)
        dump = broker.dump(tmp_path / "dump.json")
    served = sorted(
        (row["readTopic"], row["sysFlag"] & 0xC, row["properties"]["PGROUP"])
        for row in dump["messages"]
        if row["readTopic"] in ("orders", "other")
    )

    # What had ended is served as RocketMQ's own; of what waited each message is put aside once.
    assert served == [("orders", 8, "till")] * 5 + [("other", 8, "till")] * 5
    assert put_aside(broker.store) == [b"left 0", b"left 1"]
