"""A whole real node with small files, for tests of the client."""

from __future__ import annotations

from typing import Any

from tests.process.conftest import Node
from tests.process.running import topics_document

SERVE = ["-m", "ledgermq.cli.main", "serve", "--config"]


def start_client_node(
    node: Node,
    /,
    *,
    log: str = "dledger",
    file_size: int = 1_048_576,
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
        ack={"mode": "majority-memory"},
    )
    config = node.root / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(topics_document("orders", "other"))
    node.launch([*SERVE, str(node.config)])
    node.wait_ready()
