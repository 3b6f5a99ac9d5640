"""kill -9 at calls that change files, life after life, replayed from a seed.

``LEDGERMQ_KILL_POINTS`` says how many lives each kind of log has, ``LEDGERMQ_KILL_SEED`` which
points are chosen; a run that fails prints its own, and repeats the choice exactly.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.process.conftest import Node
from tests.process.kill_lives import Lives, judge, kinds_of_log

pytestmark = pytest.mark.slow

LIVES = int(os.environ.get("LEDGERMQ_KILL_POINTS", "4"))
SEED = int(os.environ.get("LEDGERMQ_KILL_SEED") or random.SystemRandom().randrange(2**31))


@pytest.mark.long(but=1)
@pytest.mark.parametrize("log", kinds_of_log())
def test_no_point_of_death_loses_moves_or_doubles_a_message(
    log: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    print(f"LEDGERMQ_KILL_SEED={SEED} LEDGERMQ_KILL_POINTS={LIVES}")
    lives = Lives(make_node(), log, SEED)
    try:
        lives.start_producer()
        stored = [0]
        for number in count():
            # All early deaths may come before the first acknowledgement.
            if number >= LIVES and lives.journal.places:
                break
            cause = lives.live()
            print(f"life {number}: {cause}", flush=True)
            stored.append(judge(lives, tmp_path))
        print(f"messages: {stored[-1]}, acknowledged: {len(lives.journal.places)}")
    finally:
        lives.close()

    assert stored == sorted(stored)
    assert len(lives.journal.places) > 0


@pytest.mark.long(but=1)
@pytest.mark.parametrize("log", kinds_of_log())
def test_no_point_of_death_while_old_files_are_deleted_loses_what_was_to_stay(
    log: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    print(f"LEDGERMQ_KILL_SEED={SEED} LEDGERMQ_KILL_POINTS={LIVES}")
    lives = Lives(make_node(), log, SEED, deletes=True)
    try:
        lives.start_producer()
        for number in count():
            # Early deaths may leave a log that is too short to lose anything.
            if number >= max(2, LIVES // 2) and lives.log_begin() > 0:
                break
            cause = lives.live()
            left = judge(lives, tmp_path)
            print(f"life {number}: {cause}; begin {lives.log_begin()}, messages {left}", flush=True)
    finally:
        lives.close()

    assert len(lives.journal.places) > 0
