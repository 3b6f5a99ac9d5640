"""What Spark reads of stores that are not as RocketMQ 4.9.4 leaves them."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.source.store_source import StoreSource, queues_in
from tests.conftest import Golden
from tests.process.test_foreign_names import FOLDERS, leave


def test_no_store_is_read_whose_queues_cannot_be_seen(golden: Golden) -> None:
    source = StoreSource(golden("p551"))
    found = source.queues()
    source.close()

    assert "plain0" in {topic for topic, _ in found}
    with pytest.raises(ConfigError, match="all queues are in RocksDB"):
        StoreSource(golden("r551rocks"))


def test_what_file_systems_and_people_have_left_is_no_queue(golden_copy: Golden) -> None:
    store = golden_copy("gs1")
    before = queues_in(store, frozenset())
    leave(store, FOLDERS["gs1"])

    assert ("plain0", 0) in before
    assert queues_in(store, frozenset()) == before
