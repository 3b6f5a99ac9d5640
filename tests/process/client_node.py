"""A whole real node with small files, for tests of the client; and topics that are one test's."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ledgermq.client import Admin
from ledgermq.model.limits import TOPIC_SIZE_MAX
from tests.process.conftest import Node
from tests.process.running import topics_document
from tests.suite.patience import PATIENCE_S


def start_client_node(
    node: Node,
    /,
    *,
    log: str = "dledger",
    file_size: int = 1_048_576,
    ack: str = "majority-memory",
    **tables: dict[str, Any],
) -> None:
    """Serve topics ``orders`` and ``other`` with four queues each; returns when ready.

    Args:
        tables: more settings, by their table.
    """
    node.configure(
        **tables,
        store={
            "mapped_file_size_commit_log": file_size,
            "mapped_file_size_consume_queue": 20_000,
            "max_hash_slot_num": 500,
            "max_index_num": 400,
            "log": log,
        },
        ack={"mode": ack},
    )
    config = node.root / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(topics_document("orders", "other"))
    node.serve()


def own_topic(node: Node, request: pytest.FixtureRequest) -> str:
    """A topic with four queues that no other test of a shared node has."""
    name = re.sub("[^a-z0-9_]", "", request.node.name)[:TOPIC_SIZE_MAX]
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        admin.create_topic(name, queues=4)
    return name
