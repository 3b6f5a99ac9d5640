"""The table of queue ends goes with the files: whole, one of one moment, as young as they are."""

from __future__ import annotations

from collections.abc import Callable

from ledgermq.raft_node.shipping.file_shipper import SLICE_SIZE_MAX
from ledgermq.store.queues.queue_ends import QueueEnds, read_queue_ends, write_queue_ends
from ledgermq.wire.ship_frames import Ends, decode_ship_frame
from tests.unit.raft_node.test_shipping import (
    FILE_SIZE,
    Link,
    Shortened,
    check_arrived,
    leader,
    make_link,
)

__all__ = ["leader", "make_link"]


def many_ends(position: int) -> QueueEnds:
    """A table that takes more than one frame."""
    return QueueEnds(position, {(b"topic-%05d" % n, n % 8): n + 1 for n in range(30_000)})


def test_the_ends_of_all_queues_arrive_with_the_files(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    ends = many_ends(FILE_SIZE + 5)
    write_queue_ends(leader.root / "queue-ends", ends)
    link = make_link()
    link.run(leader.offer._replace(has_ends=True))

    assert (leader.root / "queue-ends").stat().st_size > SLICE_SIZE_MAX
    assert link.refused == []
    assert read_queue_ends(link.folder / "queue-ends") == ends
    check_arrived(link, leader)


def test_a_table_of_ends_that_is_replaced_on_its_way_arrives_as_one_of_the_two(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    write_queue_ends(leader.root / "queue-ends", many_ends(FILE_SIZE))
    newer = many_ends(2 * FILE_SIZE)
    link = make_link()

    def replace_once(parts: list[bytes]) -> list[bytes]:
        if isinstance(decode_ship_frame(parts[0]), Ends):
            write_queue_ends(leader.root / "queue-ends", newer)
        return parts

    link.change = replace_once
    link.run(leader.offer._replace(has_ends=True))

    assert read_queue_ends(link.folder / "queue-ends") == newer


def test_a_table_of_ends_from_before_the_log_begins_is_not_taken(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    write_queue_ends(leader.root / "queue-ends", many_ends(FILE_SIZE - 1))
    link = make_link()
    link.offer(leader.offer._replace(has_ends=True))
    link.run_until(lambda: bool(link.refused), "the table to be refused")

    assert "older than the log offered" in link.refused[0]
    assert not link.receiver.is_complete


def test_files_of_a_leader_that_knows_no_table_of_ends_arrive_without_one(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    link = make_link()
    link.run(leader.offer)

    assert not (link.folder / "queue-ends").exists()
