"""What a leader's writer sends and commits by itself, and what it leaves to raft."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import AwaitFollower, LeadRun, LedMember, RunGivenBack, parse
from ledgermq.ipc.page_slots import names_cells
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.raft.message_codec import decode_message, encode_message
from ledgermq.raft.messages import Append, AppendReply, EntryId, LogTail, TermRun
from ledgermq.raft.timing import FlowLimits
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.wire.run_frames import RunKind, decode_run_frame, is_run_frame
from ledgermq.writer.led_run import Answers, LedLimits, LedRun
from tests.unit.store.test_log_writer import FILE_SIZE, Log
from tests.unit.writer.test_followed_run import Told

OWN, ONE, OTHER, AWAY = (NodeId(f"n{number}") for number in range(4))
TERM, LAST, RUN = Term(1), Index(2), 7
LIMITS = LedLimits(
    FlowLimits(inflight_count_max=4), 1 << 20, heartbeat=100, lease=150, silent_max=250
)


class Feed:
    """What the members have answered, for the writer to take, and what it has sent them."""

    def __init__(self) -> None:
        self.sources: list[Pollable] = []
        self.come: Answers = []
        self.sent: list[tuple[NodeId, bytes]] = []
        self.has_connection = True

    def await_follower(self, peer: NodeId, order: AwaitFollower) -> int:
        raise AssertionError((peer, order))

    def take(self) -> Answers:
        come, self.come = self.come, []
        return come

    def send(self, peer: NodeId, first: bytes, second: bytes | None = None) -> bool:
        del second
        self.sent.append((peer, first))
        return self.has_connection

    def look(self) -> None:
        pass

    def close(self) -> None:
        pass


class Node:
    """A leader's writer, as far as runs go, with three entries of its term."""

    def __init__(self, page: CursorPage, root: Path, *, waits_for_sync: bool) -> None:
        self.page, self.feed = page, Feed()
        self.raft, self.dispatcher = Told(), Told()
        self.fence = RunFence(page.path.with_name("run.lock"))
        self.now_ms = 5_000
        self.log = Log(root)
        self.put(3)
        self.publish_durable()
        page.publish_committed(page.read_written())
        self.run = LedRun(
            OWN,
            page,
            self.fence,
            raft=self.raft,
            dispatcher=self.dispatcher,
            feed=self.feed,
            files=EntryFiles(root / "data", root / "index", file_size=FILE_SIZE),
            fresh=self.log.writer.fresh,
            limits=LIMITS,
            monotonic_ns=lambda: self.now_ms * 1_000_000,
            waits_for_sync=waits_for_sync,
        )

    def put(self, count: int = 1) -> None:
        self.log.put([b"x" * 50] * count, term=TERM)
        self.log.writer.publish()
        end = self.log.writer.end
        self.page.publish_written(LogCursor(end.position, end.index_, end.term), 0)

    def publish_durable(self) -> None:
        self.page.publish_durable(self.page.read_written(), 0)

    def let_run(self, *members: LedMember, number: int = RUN) -> None:
        """What raft does, and the order that comes of it."""
        with RunFence(self.page.path.with_name("run.lock")):
            self.page.publish_led_run(number)
        order = LeadRun(number, TERM, Index(2), 9, Index(0), members or (fed(ONE), fed(OTHER)))
        self.run.begin(order, self.log.writer.end, TERM)
        self.run.turn(is_heard=False)

    def hear(self, *answers: tuple[NodeId, AppendReply]) -> None:
        self.feed.come += [(peer, [memoryview(encode_message(one))]) for peer, one in answers]
        self.run.turn(is_heard=True)

    @property
    def committed(self) -> int:
        return self.page.read_committed().index

    def sent_to(self, peer: NodeId) -> list[Append]:
        """The messages of the steady state that it was sent, which are forgotten by that."""
        mine = [first for one, first in self.feed.sent if one == peer and not is_run_frame(first)]
        self.feed.sent = [(one, first) for one, first in self.feed.sent if one != peer]
        messages = [decode_message(first) for first in mine]
        assert all(isinstance(one, Append) for one in messages)
        return messages  # type: ignore[return-value]

    def is_given_back(self) -> bool:
        return [parse(order) for order in self.raft.orders] == [RunGivenBack(RUN)]


def fed(peer: NodeId, *, match: int = 2, votes: bool = True) -> LedMember:
    return LedMember(names_cells([peer])[0], match, 30 + int(peer[1:]), votes)


def silent(peer: NodeId) -> LedMember:
    return LedMember(names_cells([peer])[0], 1 << 40, 0, True)


def answer(
    peer: NodeId, held: int, *, term: int = TERM, round_: int = 9
) -> tuple[NodeId, AppendReply]:
    return peer, AppendReply(
        Term(term),
        round=round_,
        accepted=True,
        verified=Index(held),
        held=Index(held),
        fit=True,
        tail=None,
    )


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    with CursorPage.create(tmp_path / "cursors") as page:
        yield page


@pytest.fixture
def node(page: CursorPage, tmp_path: Path) -> Node:
    return Node(page, tmp_path / "store", waits_for_sync=False)


def test_what_is_written_is_sent_and_committed_when_a_majority_holds_it(node: Node) -> None:
    node.let_run()
    begun = [
        (peer, decode_run_frame(first)) for peer, first in node.feed.sent if is_run_frame(first)
    ]
    node.sent_to(ONE), node.sent_to(OTHER)
    node.put()
    node.run.turn(is_heard=False)
    sent = node.sent_to(ONE)
    alone = node.committed
    node.hear(answer(ONE, 3))

    assert [(peer, frame.kind, frame.number) for peer, frame in begun] == [
        (ONE, RunKind.BEGINS, 31), (OTHER, RunKind.BEGINS, 32),
    ]  # fmt: skip
    assert [(one.previous, one.runs) for one in sent] == [
        (EntryId(TERM, Index(2)), (TermRun(TERM, 1),))
    ]
    assert (alone, node.committed) == (2, 3)
    assert node.page.read_committed() == node.page.read_written()
    assert node.dispatcher.count == 1


def test_what_waits_for_a_sync_is_committed_behind_it(page: CursorPage, tmp_path: Path) -> None:
    node = Node(page, tmp_path / "store", waits_for_sync=True)
    node.let_run()
    node.put()
    node.run.turn(is_heard=False)
    node.hear(answer(ONE, 3), answer(OTHER, 3))
    before = node.committed
    node.publish_durable()
    news = node.run.has_news
    node.run.turn(is_heard=False)

    assert (before, news, node.committed) == (2, True, 3)


def test_who_is_silent_counts_among_the_voters_and_is_sent_nothing(node: Node) -> None:
    fourth, fifth = NodeId("n4"), NodeId("n5")
    node.let_run(fed(ONE), fed(OTHER), silent(AWAY), silent(fourth))
    node.put()
    node.run.turn(is_heard=False)
    node.hear(answer(ONE, 3))
    two = node.committed
    node.hear(answer(OTHER, 3))

    assert (two, node.committed) == (2, 3)
    assert not node.sent_to(AWAY) and not node.sent_to(fifth)


def test_a_learner_does_not_count(node: Node) -> None:
    node.let_run(fed(ONE), fed(OTHER), fed(AWAY, votes=False))
    node.put()
    node.run.turn(is_heard=False)
    node.hear(answer(AWAY, 3))
    learner = node.committed
    node.hear(answer(OTHER, 3))

    assert (learner, node.committed) == (2, 3)


def test_who_is_behind_is_sent_what_it_lacks_within_its_window(node: Node) -> None:
    node.put(1)
    node.let_run(fed(ONE, match=0), fed(OTHER))

    assert [one.previous.index for one in node.sent_to(ONE) if one.runs] == [0]
    for _ in range(8):
        node.put()
        node.run.turn(is_heard=False)
    # Four are under way to it, the first of which had all that there was.
    assert len([one for one in node.sent_to(ONE) if one.runs]) == LIMITS.flow.inflight_count_max - 1
    node.hear(answer(ONE, 3))
    assert [one.previous.index for one in node.sent_to(ONE) if one.runs] == [6]


def test_rounds_are_begun_in_time_and_known_to_raft_before_anybody_hears_of_them(
    node: Node,
) -> None:
    node.let_run()
    rounds = [one.round for one in node.sent_to(ONE)]
    first = node.page.read_led()
    node.hear(answer(ONE, 2, round_=10))
    node.now_ms += 99
    node.run.turn(is_heard=False)
    early = node.sent_to(ONE)
    node.now_ms += 1
    node.run.turn(is_heard=False)
    second = node.page.read_led()

    assert (rounds, early) == ([10], [])
    assert (first.number, first.round, first.confirmed, first.matches[:2]) == (RUN, 10, 0, (2, 2))
    assert (second.round, second.confirmed) == (11, 5_000)
    assert [one.round for one in node.sent_to(ONE)] == [11]


def test_a_round_that_a_majority_has_answered_is_a_lease_at_once(node: Node) -> None:
    node.let_run()
    unanswered = node.page.read_alone_until_ns()
    node.now_ms += 30
    node.hear(answer(ONE, 2, round_=9))
    of_before = node.page.read_alone_until_ns()
    node.hear(answer(ONE, 2, round_=10))

    assert (unanswered, of_before) == (0, 0)
    # From its beginning, and not from the answer.
    assert node.page.read_alone_until_ns() == (5_000 + LIMITS.lease) * 1_000_000
    assert node.page.read_led().confirmed == 5_000


def test_a_round_that_is_answered_behind_the_run_is_no_lease(node: Node) -> None:
    node.let_run()
    with RunFence(node.page.path.with_name("run.lock")):
        node.page.publish_run(None)
    node.hear(answer(ONE, 2, round_=10))

    assert node.page.read_alone_until_ns() == 0


@pytest.mark.parametrize(
    "reply",
    [
        AppendReply(Term(2), 9, accepted=False, verified=LAST, held=LAST, fit=True, tail=None),
        AppendReply(
            TERM, 9, accepted=False, verified=LAST, held=LAST, fit=True,
            tail=LogTail(EntryId(TERM, Index(0)), (TermRun(TERM, 2),)),
        ),
    ],
    ids=["a later term", "a refusal"],
)  # fmt: skip
def test_what_raft_has_to_judge_is_given_back(node: Node, reply: AppendReply) -> None:
    node.let_run()
    node.put()
    node.run.turn(is_heard=False)
    node.hear((ONE, reply), answer(OTHER, 3))

    assert node.is_given_back()
    assert (node.committed, node.run.has_news) == (2, False)


def test_who_does_not_answer_is_left_to_raft(node: Node) -> None:
    node.let_run()
    for _ in range(3):
        node.now_ms += 100
        node.hear(answer(ONE, 2))

    assert node.is_given_back()


def test_who_is_far_behind_is_left_to_raft(node: Node) -> None:
    """However often it answers: to read for it would keep producers waiting."""
    flow = FlowLimits(inflight_count_max=1, inflight_bytes_max=1_000)
    node.run._limits = LIMITS._replace(flow=flow)
    node.let_run(fed(ONE, match=0), fed(OTHER))
    far = []
    for _ in range(3):
        node.put(20)
        node.run.turn(is_heard=False)
        node.now_ms += 100
        last = node.page.read_written().index
        node.hear(answer(ONE, 0), answer(OTHER, last))
        far.append(node.is_given_back())

    assert far[0] is False and far[-1] is True


def test_without_a_connection_there_is_no_run(node: Node) -> None:
    node.feed.has_connection = False
    node.let_run()

    assert node.is_given_back()
    assert node.page.read_led().number == 0


def test_a_run_of_another_term_or_of_a_longer_log_is_given_back(node: Node) -> None:
    with RunFence(node.page.path.with_name("run.lock")):
        node.page.publish_led_run(RUN)
    order = LeadRun(RUN, TERM, Index(99), 9, Index(0), (fed(ONE),))
    node.run.begin(order, node.log.writer.end, TERM)
    assert node.is_given_back()
    node.raft.orders.clear()
    with RunFence(node.page.path.with_name("run.lock")):
        node.page.publish_led_run(RUN + 1)
    order = order._replace(number=RUN + 1, last_index=Index(2))
    node.run.begin(order, node.log.writer.end, Term(2))

    assert [parse(one) for one in node.raft.orders] == [RunGivenBack(RUN + 1)]


def test_nothing_is_committed_behind_the_end_of_a_run(node: Node) -> None:
    """However soon another one begins, whose members may be others."""
    node.let_run()
    node.put()
    node.run.turn(is_heard=False)
    with RunFence(node.page.path.with_name("run.lock")):
        node.page.publish_run(None)
        node.page.publish_led_run(RUN + 1)
    node.hear(answer(ONE, 3), answer(OTHER, 3))

    assert (node.committed, node.raft.orders, node.run.has_news) == (2, [], False)


def test_an_order_that_raft_has_taken_back_begins_nothing(node: Node) -> None:
    order = LeadRun(RUN, TERM, Index(2), 9, Index(0), (fed(ONE), fed(OTHER)))
    node.run.begin(order, node.log.writer.end, TERM)
    node.run.turn(is_heard=False)

    assert (node.feed.sent, node.raft.orders, node.run.has_news) == ([], [], False)


def test_a_log_that_cannot_be_read_is_for_raft(node: Node, tmp_path: Path) -> None:
    node.let_run()
    node.put()
    # What was written last alone need not be read.
    node.put()
    for path in (tmp_path / "store" / "index").iterdir():
        path.write_bytes(b"")
    node.run.turn(is_heard=False)

    assert node.is_given_back()
    assert node.committed == 2


def test_a_position_is_that_of_what_was_written_at_once(node: Node) -> None:
    """In between nobody knows where an entry ends: it is published with what follows."""
    node.let_run()
    node.put(2)
    node.run.turn(is_heard=False)
    node.hear(answer(ONE, 3))
    between = node.committed
    node.hear(answer(ONE, 4))

    assert (between, node.committed) == (2, 4)
    assert node.page.read_committed().position == Position(node.log.writer.end.position)
