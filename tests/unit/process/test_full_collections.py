"""What survives a full collection is left out of the next, and what becomes garbage is found."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

BEGIN = """
import gc, json, weakref
from ledgermq.process.child_process import COUNTED_EACH, FullCollections
class Node:
    pass
def cycle():
    one = Node()
    one.itself = one
    return one
def looked_at():
    return len(gc.get_objects())
gc.collect()
gc.freeze()
FullCollections().install()
"""
"""As a process that was forked, in one of its own: the collector is all of Python's."""


def run(program: str) -> Any:
    return json.loads(subprocess.check_output([sys.executable, "-c", BEGIN + program]))


def test_a_large_table_is_looked_at_once() -> None:
    found = run("""
table = {number: [number] for number in range(20_000)}
before = looked_at()
gc.collect()
print(json.dumps([before, looked_at(), gc.get_freeze_count(), gc.get_threshold()[2]]))
""")
    before, after, left_out, per_full = found

    assert before > 20_000
    assert after < 100
    assert left_out > 20_000
    assert per_full < 10


def test_garbage_that_is_new_is_found_at_once() -> None:
    assert run("""
gone = weakref.ref(cycle())
gc.collect()
print(json.dumps(gone() is None))
""")


def test_garbage_among_what_is_left_out_is_found_when_that_has_doubled() -> None:
    found = run("""
from ledgermq.process import child_process
child_process.LEFT_OUT_MIN = 0
kept = [cycle() for _ in range(1_000)]
gc.collect()
gone = [weakref.ref(one) for one in kept]
del kept
for _ in range(3 * COUNTED_EACH):
    gc.collect()
early = sum(one() is not None for one in gone)
table = [[number] for number in range(2 * gc.get_freeze_count())]
for _ in range(COUNTED_EACH + 1):
    gc.collect()
late = sum(one() is not None for one in gone)
again = looked_at()
print(json.dumps([early, late, again]))
""")
    early, late, looked_at_again = found

    assert early == 1_000
    assert late <= 1
    assert looked_at_again < 100
