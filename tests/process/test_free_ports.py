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
first, draw = int(sys.argv[1]) - 12_000, secrets.randbelow
drawn = []
def drawing(below):
    drawn.append(draw(below) if drawn else first)
    return drawn[-1]
with patch.object(secrets, "randbelow", drawing):
    print(free_port(), len(drawn))
"""


@pytest.mark.parametrize("count", [1, 4])
def test_a_port_that_was_chosen_is_not_given_to_another_process_before_it_is_used(
    count: int,
) -> None:
    port = free_port(count) + count - 1

    other = run_python("-c", CHOOSE, port)

    assert other.returncode == 0, other.stderr
    other_port, draws = map(int, other.stdout.split())
    assert other_port != port
    assert draws > 1
