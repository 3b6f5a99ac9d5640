"""Bugs of the product that spoilt disks have shown, each as small as it can be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.errors import CorruptLogError
from tests.simulator.runs.runs import run_seed
from tests.unit.store.test_recovery import DURABLE, recover, write_log

PAGE_SIZE = 4_096


@pytest.mark.parametrize("pages", [1, 2])
def test_a_log_that_lost_its_first_pages_is_not_taken_for_one_that_begins_behind_them(
    tmp_path: Path, pages: int
) -> None:
    """It went on behind the zeros with entry 0, which no leader could ever send to there."""
    log = write_log(tmp_path, entries=True)
    path = tmp_path / "data" / f"{0:020d}"
    content = path.read_bytes()
    lost = min(len(content), pages * PAGE_SIZE // 2)
    path.write_bytes(bytes(lost) + content[lost:])

    with pytest.raises(CorruptLogError, match="durable end") as refused:
        recover(tmp_path, entries=True, checkpoint=log.checkpoint)

    assert refused.value.details["position"] == 0
    assert refused.value.details["durable_index"] >= DURABLE - 1


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(5, id="first pages lost"),
        pytest.param(13, id="a leader sends a damaged entry again and again"),
        pytest.param(37, id="a leader numbers messages by damaged bytes"),
        pytest.param(70021, id="a disk turns the link of the first entry that a member lacks"),
        pytest.param(74073, id="power fails when a log that was cut has got two files again"),
    ],
)
def test_a_group_with_a_bad_disk_keeps_its_promises(seed: int) -> None:
    outcome = run_seed(seed, spoils=True, interrupted=False)

    assert not outcome.failure, "\n".join(outcome.history[-40:])


@pytest.mark.slow
def test_a_new_writer_cuts_no_damage_while_its_leader_counts_answers() -> None:
    """Raft had committed nothing yet in this life of the node, and counted what was cut then."""
    outcome = run_seed(387, interrupted=False)

    assert not outcome.failure, "\n".join(outcome.history[-40:])


@pytest.mark.long(but=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(61008, id="raft starts again, and takes what others wrote for the same"),
        pytest.param(60535, id="a producer sends again, and its message is not found"),
    ],
)
def test_entries_that_stand_where_pages_are_lost_are_still_entries(seed: int) -> None:
    """Both took a log whose beginning is spoilt for one that begins later."""
    outcome = run_seed(seed, interrupted=False)

    assert not outcome.failure, "\n".join(outcome.history[-40:])


@pytest.mark.slow
def test_nobody_leads_with_entries_that_its_writer_never_got() -> None:
    """It was elected for what lay in the append ring, and its writer stamped on without that."""
    outcome = run_seed(100318, interrupted=False)

    assert not outcome.failure, "\n".join(outcome.history[-40:])


@pytest.mark.slow
def test_a_leader_finds_a_turned_link_of_what_nobody_else_has() -> None:
    """Its followers refused it each time it was sent, and nobody looked at it."""
    outcome = run_seed(3612173)

    assert not outcome.failure, "\n".join(outcome.history[-40:])
