"""Positions outside of their queues: which they are, and where they are put."""

from __future__ import annotations

from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.state.outlying_positions import Outlier, find_outliers, put_right
from ledgermq.rules.tables.delays import DelayTable
from ledgermq.rules.tables.documents import finish
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.moves import MoveTable, Source
from ledgermq.rules.tables.shares import ShareTable

ENDS = {QueueName("t", 0): 10, QueueName("t", 1): 0, QueueName(DELAY_TOPIC, 0): 5}


def offsets_of(**queues: int) -> GroupOffsets:
    return GroupOffsets.read(
        {"offsetTable": {"t@g": {name.removeprefix("q"): at for name, at in queues.items()}}}
    )


def found(offsets: GroupOffsets, *moved: MoveTable, **more: int) -> list[Outlier]:
    at_least = {(b"t", int(name.removeprefix("q"))): end for name, end in more.items()}
    return finish(find_outliers(offsets, moved, ENDS.get, at_least=at_least))


def test_the_end_is_within_a_queue_and_what_is_behind_it_is_not() -> None:
    within = found(offsets_of(q0=10, q1=0))
    outside = found(offsets_of(q0=11, q1=1))

    assert within == []
    assert [(one.queue, one.was, one.position) for one in outside] == [
        (QueueName("t", 0), 11, 10),
        (QueueName("t", 1), 1, 0),
    ]


def test_below_its_first_message_a_position_stays_and_below_zero_it_does_not() -> None:
    offsets = offsets_of(q0=-1)
    outliers = found(offsets, DelayTable.read({"offsetTable": {"1": 0}}))
    put_right(outliers, offsets, ())

    assert outliers == [Outlier("consumerOffset.json", "g", QueueName("t", 0), -1, 0)]
    assert offsets.offsets("g", "t") == {0: 0}


def test_of_a_queue_that_nobody_knows_nothing_is_changed() -> None:
    assert found(offsets_of(q7=99)) == []


def test_what_was_reached_already_is_not_looked_up() -> None:
    assert found(offsets_of(q0=12), q0=12) == []
    assert len(found(offsets_of(q0=12), q0=11)) == 1


def test_a_move_beyond_its_queue_goes_to_its_end_and_one_that_was_cut_is_finished_first() -> None:
    delays = DelayTable.read({"offsetTable": {"1": 400, "2": 400}})
    moves = MoveTable()
    moves.put(QueueName("t", 0), Source(11, {"due": 7}))
    moves.put(QueueName("t", 1), Source(11, open_at=3, open_from=2))
    outliers = found(GroupOffsets(), delays, moves)
    revision = delays.revision
    put_right(outliers, GroupOffsets(), (delays, moves))

    assert [(one.file, one.queue, one.position) for one in outliers] == [
        ("delayOffset.json", QueueName(DELAY_TOPIC, 0), 5),
        ("moves.json", QueueName("t", 0), 10),
    ]
    assert delays[QueueName(DELAY_TOPIC, 0)] == Source(5)
    assert delays[QueueName(DELAY_TOPIC, 1)].next_offset == 400
    assert delays.revision > revision
    # Its marks were of messages that are not there.
    assert moves[QueueName("t", 0)] == Source(10)
    assert moves[QueueName("t", 1)].next_offset == 11


def test_what_a_share_group_has_handed_out_beyond_its_queue_is_handed_out_again() -> None:
    offsets = offsets_of(q0=7, q1=0)
    queues = {
        "0": {"next": 40, "runs": [[7, 2, 9, 1, 5], [20, 4, 9, 1, 5]]},
        "1": {"next": 0, "runs": []},
    }
    shares = ShareTable.read({"shares": {"t@g": queues}})
    outliers = finish(find_outliers(offsets, (), ENDS.get, shares=shares))
    revision = shares.revision
    put_right(outliers, offsets, (), shares)
    queue = shares.queues("g", "t")[0]

    assert outliers == [Outlier("share-groups.json", "g", QueueName("t", 0), 40, 7)]
    # Else all that comes before number 40 would be passed over.
    assert (queue.low, queue.next, queue.unsettled) == (7, 7, 0)
    assert (shares.unsettled, shares.unsettled_of("g")) == (0, 0)
    assert shares.revision > revision
