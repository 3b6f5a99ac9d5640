"""Plugin of pytest: ``ledgermq_node``, a real node, and ``ledgermq_group``, three of them.

pytest finds it by its entry point in whatever environment has the node's distribution, so that it
imports next to nothing before a fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgermq.testing.local_broker import LocalBroker


@pytest.fixture(scope="session")
def ledgermq_node() -> Iterator[LocalBroker]:
    """A node for all tests of this process; with pytest-xdist each worker has its own."""
    with LocalBroker() as node:
        yield node


@pytest.fixture(scope="session")
def _ledgermq_group() -> Iterator[LocalBroker]:
    with LocalBroker(nodes=3) as group:
        yield group


@pytest.fixture
def ledgermq_group(_ledgermq_group: LocalBroker) -> Iterator[LocalBroker]:
    """The same with three nodes; those that a test has killed run again before the next one."""
    yield _ledgermq_group
    _ledgermq_group.start_killed()
