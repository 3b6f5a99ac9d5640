"""The process of receipts: makes the checkpoints that the broker of its node orders.

It writes nothing, and nothing waits for it: what it hashes it hashes in a thread that has what
processors leave over, so that producers and consumers do not feel it. Where they leave nothing,
checkpoints come later. Those that are later than ``receipts.behind_max_s`` are made without that
thread, at the cost of the others: no load keeps them away for longer.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.reading.store_upkeep import DamageReports
from ledgermq.broker.receipts.checkpoint_maker import (
    CheckpointFound,
    CheckpointMaker,
    CheckpointTask,
)
from ledgermq.ipc.counters import ReceiptsCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.loop import SLEEP_MAX_MS, Pollable, StopFlag
from ledgermq.ipc.orders import CheckpointMade, MakeCheckpoint, encode, parse
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError, ProtocolError
from ledgermq.process.clock import epoch_ms
from ledgermq.process.node import Surroundings
from ledgermq.process.worker_main import run_worker
from ledgermq.sessions.keys.receipt_key import read_signer
from ledgermq.sessions.request_faults import RequestFaults

logger = logging.getLogger(__name__)

_NICE_MAX = 19
_SIGN_S = 1.0


def give_way() -> None:
    """Have the thread that calls run where no other has work: one that wakes up takes its processor
    at once. A nice value leaves it a share beside them, and lets it end its slice.
    """
    # For one thread, as the policy is; it is what is left where a sandbox refuses that.
    os.setpriority(os.PRIO_PROCESS, 0, _NICE_MAX)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError as error:
        logger.warning("receipts are made at a nice value of %d: %s", _NICE_MAX, error)


class ReceiptWorker:
    """What one turn of the process does."""

    zmq_uses: Final = None

    def __init__(self, environment: Surroundings) -> None:
        """Read the key.

        Raises:
            ConfigError: there is none in the file, or others may read it.
        """
        settings, clock, page = environment.settings, environment.clock, environment.page
        path = settings.receipts.key_file
        assert path is not None, "receipts without a key"
        signer = read_signer(path)
        self._inbox = environment.inbox
        self._broker = environment.bell(Role.BROKER)
        self._raft = environment.bell(Role.RAFT)
        self._counts = counts = page.counters(Role.RECEIPTS)
        # What an earlier life has found may not be what is in the log.
        for counter in (
            ReceiptsCounter.POSITION, ReceiptsCounter.CHECKPOINT_AT, ReceiptsCounter.TREE_SIZE,
            ReceiptsCounter.BEHIND_MS,
        ):  # fmt: skip
            counts[counter] = 0
        self._faults = RequestFaults(counts, ReceiptsCounter.FAILED)
        self._page = page
        self._store = ReadableStore(page, settings, DamageReports(self._raft, clock))
        self._maker = CheckpointMaker(
            self._store,
            signer,
            counts,
            lambda: epoch_ms(clock),
            self._give_sign,
        )
        self._aside = ThreadPoolExecutor(1, "aside", initializer=give_way)
        self._behind_ms_max = settings.receipts.behind_max_s * 1_000
        self._is_late = self._has_read = False
        self._answer = b""
        logger.info("receipts are signed by: key=%s", signer.key.as_text())

    def sources(self) -> list[Pollable]:
        """The inbox."""
        return [*self._inbox.sources]

    def sleep_ms(self, now_ns: int) -> int:
        """It sleeps until there is an order."""
        del now_ns
        return SLEEP_MAX_MS

    def hears_bells(self, now_ns: int) -> bool:
        """Nobody rings."""
        del now_ns
        return False

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """Carry out the last order: who has sent another one waits for no earlier one any more."""
        del now_ns
        wanted: MakeCheckpoint | None = None
        for message in self._inbox.drain(ready):
            try:
                order = parse(message)
            except ProtocolError as error:
                logger.warning("order refused: %s", error)
                continue
            if isinstance(order, MakeCheckpoint):
                wanted = order
        if wanted is not None:
            self._answer = encode(self._carried_out(wanted))
            self._has_read = True
        if self._answer:
            # A broker that has just begun, or has much to take, takes it later.
            if self._broker.send(self._answer):
                self._answer = b""
            self._broker.rouse()
        elif self._has_read:
            self._has_read = False
            self._store.tidy()

    def _carried_out(self, order: MakeCheckpoint) -> CheckpointMade:
        """The answer to an order. An order is small: the thread ends it in seconds where it has but
        a thousandth of a processor, so what is late is looked at with the next one.
        """
        if self._is_late:
            self._counts[ReceiptsCounter.HURRIED] += 1
            return self._made(order)
        made = self._aside.submit(self._made, order)
        while not wait([made], _SIGN_S).done:
            self._give_sign()
        return made.result()

    def _give_sign(self) -> None:
        self._page.give_sign(Role.RECEIPTS, time.monotonic_ns())

    def _made(self, order: MakeCheckpoint) -> CheckpointMade:
        try:
            found = self._maker.make(CheckpointTask.of(order))
        except LedgerError as error:
            self._counts[ReceiptsCounter.FAILED] += 1
            logger.error("checkpoint of receipts not made: %s", error)
            return CheckpointMade(order.number, -1, 0, b"")
        except (OSError, MemoryError):
            raise
        except Exception as error:
            self._faults.refusal(error, "checkpoint of receipts")
            return CheckpointMade(order.number, -1, 0, b"")
        self._look_whether_late(found)
        content = b"" if found.checkpoint is None else found.checkpoint.encoded()
        return CheckpointMade(order.number, found.end, found.is_behind, content)

    def _look_whether_late(self, found: CheckpointFound) -> None:
        is_late = found.is_behind and found.behind_ms > self._behind_ms_max
        if is_late and not self._is_late:
            logger.warning(
                "receipts are late, for nothing is left of the processors: they take their share"
                " now: behind_ms=%d, receipts.behind_max_s=%d", found.behind_ms,
                self._behind_ms_max // 1_000,
            )  # fmt: skip
        self._is_late = is_late

    def take_settings(self, settings: Settings) -> None:
        """None of them changes while it runs."""

    def finish(self) -> None:
        """Nothing of its own is to be brought to an end."""

    def close(self) -> None:
        """Let go."""
        self._aside.shutdown()
        self._broker.close()
        self._raft.close()
        if isinstance(self._counts, memoryview):
            self._counts.release()


def run(settings: Settings, stop: StopFlag) -> int:
    """Make checkpoints until told to stop; the exit status.

    Raises:
        ConfigError: ``receipts.key_file`` has no key, or others may read it.
        StaleGenerationError: the supervisor has made no page, or another version has.
    """
    return run_worker(Role.RECEIPTS, settings, stop, ReceiptWorker)
