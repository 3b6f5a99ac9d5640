"""RocketMQ opens and serves the stores that lives of a node left which ended in kill -9."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.store.recovery.recovery import INDEX_FILE_SIZE
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.process.conftest import Node
from tests.process.kill_lives import LOG_FILE_SIZE, SIZES, TOPIC, Lives, judge, kinds_of_log
from tests.process.test_kill_points import SEED

LIVES = 5
JAVA_SIZES = {
    "mappedFileSizeCommitLog": LOG_FILE_SIZE,
    "mappedFileSizeConsumeQueue": SIZES["mapped_file_size_consume_queue"],
    "maxHashSlotNum": SIZES["max_hash_slot_num"],
    "maxIndexNum": SIZES["max_index_num"],
}


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("log", kinds_of_log())
def test_rocketmq_serves_what_was_acknowledged_before_the_kills(
    log: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    print(f"LEDGERMQ_KILL_SEED={SEED}")
    lives = Lives(make_node(), log, SEED, index_file_size=INDEX_FILE_SIZE)
    try:
        lives.start_producer()
        for _ in range(LIVES):
            print(lives.live())
            judge(lives, tmp_path)
    finally:
        lives.close()
    lives.journal.refresh()
    told = set(lives.journal.places.values())

    with rocketmq_serving(
        lives.node.root,
        tmp_path / "java",
        plain=log == "commitlog",
        settings=JAVA_SIZES,
        self_id="n7",
    ) as broker:
        dump = broker.dump(tmp_path / "dump.json")
    served = [
        (m["readQueue"], m["queueOffset"], m["physicalOffset"])
        for m in dump["messages"]
        if m["readTopic"] == TOPIC
    ]

    assert len(served) == len(set(served))
    assert told <= set(served)
