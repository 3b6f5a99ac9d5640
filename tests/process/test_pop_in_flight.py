"""What POP of RocketMQ 5 has handed out, and nobody acknowledged, comes again to its group."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.formats.config_json import decode_document
from ledgermq.store.origin import Product, origin_of
from tests.conftest import Golden
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.test_delivery import received
from tests.process.test_rocketmq_5_store import STORE
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

GROUP = "g5-poplong-" + "g" * 49
TOPIC = "poplong-" + "t" * 92


def set_consumed(root: Path, offset: int) -> None:
    """How far the group has read POP's own retry topic, which has two messages."""
    path = root / "config" / "consumerOffset.json"
    document = decode_document(path.read_bytes(), file=str(path))
    table = document["offsetTable"]
    assert isinstance(table, dict)
    (key,) = (name for name in table if name.startswith("%RETRY%"))
    table[key] = {"0": offset}
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("consumed", [2, 1])
def test_what_was_handed_out_or_waits_for_a_retry_comes_once_and_after_a_kill_not_again(
    make_node: Callable[[], Node], golden: Golden, consumed: int
) -> None:
    node = make_node()
    shutil.copytree(golden("p551v2k"), node.root)
    node.configure(store=STORE)
    set_consumed(node.root, consumed)
    node.serve()
    node.end()
    node.serve()
    found = received(node.address, f"%RETRY%{GROUP}", 4 - consumed)
    product = origin_of(node.root).product

    assert node.stop() == 0
    # Both were given back for another half minute; one waits in the retry topic, too.
    unread = Counter({b"pop 3": 2 - consumed})
    assert Counter(bytes(one.body) for one in found) == Counter([b"pop 7", b"pop 3"]) + unread
    assert {one.properties["RETRY_TOPIC"] for one in found} == {TOPIC}
    assert Counter(one.reconsume_times for one in found) == Counter({2: 2}) + Counter(
        {1: 2 - consumed}
    )
    assert product is Product.OURS
    offsets = decode_document((node.root / "config" / "consumerOffset.json").read_bytes())
    table = offsets["offsetTable"]
    assert isinstance(table, dict)
    assert table["rmq_sys_REVIVE_LOG_oracle@CID_RMQ_SYS_REVIVE_GROUP"] == {"0": 13, "2": 2}
    assert table[f"%RETRY%{GROUP}_{TOPIC}@{GROUP}"] == {"0": 2}


def test_grpc_clients_get_what_pop_had_handed_out_without_asking_for_the_retry_topic(
    make_node: Callable[[], Node], golden: Golden
) -> None:
    """They know of no such topic: RocketMQ's proxy takes from it, too."""
    pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")
    from ledgermq.gateway.rpc.definition import make
    from tests.process.grpc_clients import RawClient
    from tests.process.test_grpc_receive import ask

    node, address = make_node(), f"127.0.0.1:{free_port()}"
    shutil.copytree(golden("p551v2k"), node.root)
    node.configure(store=STORE, listen={"grpc": address})
    set_consumed(node.root, 1)
    node.serve()
    raw = RawClient(address)
    found: list[Any] = []

    def has_all() -> bool:
        answers = raw.receive(ask(TOPIC, GROUP, batch_size=2))
        told = [one.message for one in answers if one.HasField("message")]
        entries = [
            {"message_id": "x", "receipt_handle": one.system_properties.receipt_handle}
            for one in told
        ]
        if entries:
            raw.call(
                "AckMessage",
                make(
                    "AckMessageRequest",
                    group={"name": GROUP}, topic={"name": TOPIC}, entries=entries,
                ),
            )  # fmt: skip
        found.extend(told)
        return Counter(one.body for one in found) >= Counter({b"pop 3": 2, b"pop 7": 1})

    wait_until(has_all, "what was handed out, and what waited for a retry", PATIENCE_S)
    again = [one for one in found if one.body in (b"pop 3", b"pop 7")]
    raw.close()
    assert node.stop() == 0

    assert Counter(one.body for one in again) == Counter({b"pop 3": 2, b"pop 7": 1})
    assert {one.topic.name for one in again} == {TOPIC}
    assert sorted(one.system_properties.delivery_attempt for one in again) == [2, 3, 3]
