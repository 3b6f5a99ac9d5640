"""Idle queues keep their numbers while logs are deleted and shipped; deliberate bugs are found."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from ledgermq.dispatcher.dispatcher import EndTable
from ledgermq.raft_node.shipping.file_receiver import FileReceiver
from ledgermq.store.queues.queue_files import QueueFiles
from ledgermq.writer.retention import log_survey
from tests.simulator.runs.idle_queues import run_idle_seed

pytestmark = pytest.mark.slow

SEEDS = min(int(os.environ.get("LEDGERMQ_SEEDS", "3")), 200)
SEEDS_FOR_A_BUG = 12

Patch = pytest.MonkeyPatch


def ends_are_forgotten_at_shipping(patch: Patch) -> None:
    """As before there was a table: files come alone."""
    seal = FileReceiver._seal
    patch.setattr(FileReceiver, "_seal", lambda one, offer, ends: seal(one, offer, None))


def queues_are_not_put(patch: Patch) -> None:
    """The table comes, and nobody looks at it when queues are built."""
    patch.setattr(QueueFiles, "put_ends", lambda *_, **__: 0)


def ends_are_put_too_early(patch: Patch) -> None:
    """Before the messages are dispatched that the table counts: they are put behind themselves."""
    put = EndTable.put

    def hasty(table: EndTable, builder: object, log_start: int) -> int:
        table._waiting = [one._replace(position=log_start) for one in table._waiting]
        return put(table, builder, log_start)  # type: ignore[arg-type]

    patch.setattr(EndTable, "put", hasty)


def retention_waits_for_no_table(patch: Patch) -> None:
    """And the dispatcher writes one for every hundredth file alone."""
    patch.setattr(log_survey, "read_queue_ends", lambda path: None)
    guards = log_survey._guards
    patch.setattr(
        log_survey,
        "_guards",
        lambda *args: [one for one in guards(*args) if "ends" not in one.setting],
    )
    due = EndTable.due
    patch.setattr(
        EndTable,
        "due",
        lambda table, builder, start: None if start % 819_200 else due(table, builder, start),
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_message_has_the_next_number_of_its_queue(seed: int) -> None:
    failure, run = run_idle_seed(seed)

    assert failure == "", f"again: python -m tests.simulator --idle --seed {seed} --trace"
    assert run.deleted > 0


@pytest.mark.parametrize(
    "bug",
    [
        ends_are_forgotten_at_shipping,
        queues_are_not_put,
        ends_are_put_too_early,
        retention_waits_for_no_table,
    ],
)
def test_a_deliberate_bug_is_found_within_few_seeds(
    bug: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    assert any(run_idle_seed(seed)[0] for seed in range(SEEDS_FOR_A_BUG))
