"""Topics that a node knows, and those that it will know soon."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.config.settings import NodeSection, Settings, StoreSection
from ledgermq.model.errors import NotLeaderError, TopicUnknownError


def test_the_brokers_own_topics_come_with_the_first_leader(tmp_path: Path) -> None:
    node = NodeSection(self_id="n0", broker_cluster_name="C")
    settings = Settings(node=node, store=StoreSection(path_root_dir=tmp_path / "root"))
    (tmp_path / "root" / "config").mkdir(parents=True)
    with CursorPage.create(tmp_path / "page") as page:
        tables = BrokerTables(tmp_path / "root" / "config", settings)
        known = KnownTopics(ReadableStore(page, settings, lambda _: None), tables)
        with pytest.raises(NotLeaderError, match="C_REPLY_TOPIC"):
            known.topic("C_REPLY_TOPIC")
        with pytest.raises(TopicUnknownError):
            known.topic("D_REPLY_TOPIC")
        tables.begin_term(1)

        assert known.topic("C_REPLY_TOPIC").read_queues == 1
