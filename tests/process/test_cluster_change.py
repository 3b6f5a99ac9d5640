"""Three groups under load, a fourth that joins, the first that goes, and leaders that die."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.process.cluster_change import Cluster, check, native_client, report
from tests.process.conftest import Node

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_a_group_joins_and_one_is_drained_under_load_while_leaders_die_and_nothing_is_lost(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    cluster = Cluster(make_node, members=1)
    with ExitStack() as ends:
        client = ends.enter_context(native_client("native", cluster.groups[:2], tmp_path))
        ends.callback(lambda: print(report(cluster, [client.history])))
        cluster.change([client])
        cluster.end([client])

    check([client.history])
