"""Ports of test nodes: chosen by one process of pytest, they are no other one's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.group_nodes import free_port

pytestmark = pytest.mark.slow

CHOOSE = """
import secrets, sys
from unittest.mock import patch
from tests.process.group_nodes import free_port
with patch.object(secrets, "randbelow", side_effect=[int(sys.argv[1]) - 12_000, 7_000, 7_001]):
    print(free_port())
"""


def test_a_port_that_was_chosen_is_not_given_to_another_process_before_it_is_used() -> None:
    port = free_port()

    other = subprocess.run(
        [sys.executable, "-c", CHOOSE, str(port)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[2],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert int(other.stdout) in (19_000, 19_001)
