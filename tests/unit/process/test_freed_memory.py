"""Memory that a process gives back and takes again, as frames of entries come and go."""

from __future__ import annotations

import subprocess
import sys

import pytest

PAGES = 8 * 256

TAKE_AND_GIVE_BACK = """
import resource
from ledgermq.process.child_process import keep_freed_memory
{keep}
def round():
    blocks = [bytearray(1024 * 1024) for _ in range(8)]
round()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    round()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: str) -> int:
    """Page faults of twenty rounds, each of which takes eight blocks and gives them back."""
    program = TAKE_AND_GIVE_BACK.format(keep=keep)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.slow
def test_blocks_that_come_and_go_cost_no_page_faults() -> None:
    assert faults("keep_freed_memory()") < PAGES
    # So that it is known that the program does what it is about.
    assert faults("") > 10 * PAGES
