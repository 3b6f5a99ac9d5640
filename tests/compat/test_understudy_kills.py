"""An understudy and its master are killed again and again, and both have the same bytes.

``LEDGERMQ_UNDERSTUDY_KILLS=200 python -m pytest tests/compat/test_understudy_kills.py`` for the
long run; the master is killed with each fourth.
"""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat.java_broker import JavaBroker
from tests.compat.other_clients import NotToBeHadError
from tests.compat.rocketmq5 import fetch
from tests.compat.test_understudy import compare, loaded, status_of, wait_level
from tests.process.conftest import wait_until
from tests.process.understudy_process import UnderstudyProcess
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

KILLS = int(os.environ.get("LEDGERMQ_UNDERSTUDY_KILLS", "8"))
PER_MASTER = 4
SEED = 47


@pytest.mark.parametrize("product", [4, 5])
def test_whoever_is_killed_however_often_the_bytes_are_equal(tmp_path: Path, product: int) -> None:
    """RocketMQ 4.9.4 and 5.5.1, under a load that goes on whatever is killed."""
    if product == 5:
        try:
            fetch()
        except NotToBeHadError as error:
            pytest.skip(str(error))
    master = JavaBroker(product, tmp_path)
    process = UnderstudyProcess(tmp_path / "understudy", tmp_path / "said")
    chance = random.Random(SEED)
    print(f"LEDGERMQ_UNDERSTUDY_KILLS={KILLS} seed={SEED}")
    with ExitStack() as ends:
        ends.callback(master.kill)
        ends.callback(process.kill)
        master.start("ASYNC_MASTER")
        process.add(master.ha, master.address)
        process.start()
        for killed in range(0, KILLS, PER_MASTER):
            with loaded(master.address, seed=SEED + killed) as load:
                for _ in range(min(PER_MASTER, KILLS - killed)):
                    wanted = len(load.stored) + chance.randrange(1, 60)
                    wait_until(lambda load=load, wanted=wanted: len(load.stored) >= wanted, "load")
                    process.kill()
                    process.start()
                wanted = status_of(process).durable
                wait_until(lambda wanted=wanted: status_of(process).durable > wanted, "it follows")
                master.kill()
            assert not process.has_ended, process.said.read_text()
            master.start("ASYNC_MASTER")
        wait_level(process, master.store)
        compare(process, master.store)
        wait_until(lambda: process.show()["state"] == "following", "it follows", PATIENCE_S)
        assert process.stop() == 0
