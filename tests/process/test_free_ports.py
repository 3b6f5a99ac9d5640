"""Ports of test nodes: chosen by one process of pytest, they are no other one's."""

from __future__ import annotations

import pytest

from tests.process.group_nodes import free_port
from tests.process.node_start import run_python

pytestmark = pytest.mark.slow

CHOOSE = """
import secrets, sys
from unittest.mock import patch
from tests.process.group_nodes import free_port
with patch.object(secrets, "randbelow", side_effect=[int(sys.argv[1]) - 12_000, 7_000, 7_001]):
    print(free_port())
"""


@pytest.mark.parametrize("count", [1, 4])
def test_a_port_that_was_chosen_is_not_given_to_another_process_before_it_is_used(
    count: int,
) -> None:
    port = free_port(count) + count - 1

    other = run_python("-c", CHOOSE, port)

    assert other.returncode == 0, other.stderr
    assert int(other.stdout) in (19_000, 19_001)
