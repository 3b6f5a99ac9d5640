"""What a follower's writer takes by itself, what it answers, and what it leaves to raft."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import FeedFrom, FollowRun, RunGivenBack, parse
from ledgermq.ipc.page_slots import names_cells
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.errors import DiskFullError
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.raft.message_codec import decode_message, encode_message
from ledgermq.raft.messages import Append, AppendReply, EntryId, TermRun
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.wire.run_frames import RunFrame, RunKind, encode_run_frame
from ledgermq.writer.followed_run import Fed, FollowedRun

OWN, LEADER, OTHER = NodeId("n0"), NodeId("n1"), NodeId("n2")
TERM, LAST, RUN = Term(3), Index(4), 7
END = LogEnd(Position(500), LAST, TERM, 9)
NOW_NS = 5_000_000_000


class Told:
    """A bell that keeps what it is sent, and counts how often it is rung."""

    def __init__(self) -> None:
        self.orders: list[bytes] = []
        self.count = 0

    def ring(self) -> None:
        self.count += 1

    def rouse(self) -> None:
        raise AssertionError

    def send(self, order: bytes) -> bool:
        self.orders.append(order)
        return True

    def close(self) -> None:
        pass


class Feed:
    """What has come, for the writer to take, and what it has answered."""

    def __init__(self) -> None:
        self.sources: list[Pollable] = []
        self.come: list[Fed] = []
        self.answers: list[tuple[NodeId, AppendReply]] = []

    def dial(self, order: FeedFrom) -> None:
        raise AssertionError(order)

    def take(self) -> list[Fed]:
        come, self.come = self.come, []
        return come

    def send(self, peer: NodeId, reply: bytes) -> None:
        message = decode_message(reply)
        assert isinstance(message, AppendReply)
        self.answers.append((peer, message))

    def close(self) -> None:
        pass


class Node:
    """A follower's writer, as far as runs go: its log is what it was given."""

    def __init__(self, page: CursorPage, *, waits_for_sync: bool) -> None:
        self.page = page
        self.feed = Feed()
        self.raft, self.dispatcher = Told(), Told()
        self.log: list[bytes] = []
        self.has_room = True
        self.fence = RunFence(page.path.with_name("run.lock"))
        page.publish_written(LogCursor(END.position, END.index_, END.term), 0)
        page.publish_durable(LogCursor(END.position, END.index_, END.term), 0)
        self.run = FollowedRun(
            OWN,
            page,
            self.fence,
            raft=self.raft,
            dispatcher=self.dispatcher,
            feed=self.feed,
            append=self.append,
            is_full=lambda: False,
            monotonic_ns=lambda: NOW_NS,
            waits_for_sync=waits_for_sync,
        )

    def append(self, entries: memoryview, first: Index, last: Index) -> LogEnd:
        if not self.has_room:
            raise DiskFullError("no space")
        assert first == self.page.read_written().index + 1
        self.log.append(bytes(entries))
        end = LogEnd(Position(100 * (last + 1)), last, TERM, 9)
        self.page.publish_written(LogCursor(end.position, end.index_, end.term), 0)
        return end

    def let_run(self, number: int = RUN) -> None:
        """What raft does, and the order that comes of it."""
        with RunFence(self.page.path.with_name("run.lock")):
            self.page.publish_follow_run(number)
        (name,) = names_cells([LEADER])[:1]
        self.run.begin(FollowRun(number, TERM, LAST, 1, name), END)

    def hear(self, *fed: Fed) -> None:
        self.feed.come += fed
        self.run.turn(is_heard=True)


def begins(number: int = RUN, source: NodeId = LEADER) -> Fed:
    return source, [memoryview(encode_run_frame(RunFrame(RunKind.BEGINS, TERM, number)))]


def entry(number: int, *, commit: int = 4, term: int = TERM, source: NodeId = LEADER) -> Fed:
    previous, runs = EntryId(Term(term), Index(number - 1)), (TermRun(Term(term), 1),)
    head = encode_message(Append(Term(term), previous, runs, Index(commit), 2))
    return source, [memoryview(head), memoryview(b"%d" % number)]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    with CursorPage.create(tmp_path / "cursors") as page:
        yield page


def held_of(node: Node) -> list[int]:
    assert {peer for peer, _ in node.feed.answers} <= {LEADER}
    return [reply.held for _, reply in node.feed.answers]


def test_what_the_leader_sends_is_appended_answered_and_known_to_raft(page: CursorPage) -> None:
    node = Node(page, waits_for_sync=False)
    node.let_run()
    node.hear(begins(), entry(5), entry(6, commit=5))

    assert node.log == [b"5", b"6"]
    assert held_of(node) == [5, 6]
    assert page.read_written().index == 6
    assert page.read_committed() == LogCursor(Position(600), Index(5), TERM)
    assert page.read_heard() == (RUN, 5_000, 2, 5_000)
    assert node.raft.orders == []
    assert node.dispatcher.count == 2


def test_what_waits_for_a_sync_is_answered_and_committed_behind_it(page: CursorPage) -> None:
    node = Node(page, waits_for_sync=True)
    node.let_run()
    node.hear(begins(), entry(5, commit=5))
    before = held_of(node)
    page.publish_durable(LogCursor(Position(600), Index(5), TERM), 1)
    has_news = node.run.has_news
    node.run.turn(is_heard=False)

    assert has_news and not node.run.has_news
    assert held_of(node) == [*before, 5]
    assert max(before, default=4) == 4
    assert page.read_committed().index == 5


def test_what_comes_before_raft_lets_it_waits_and_what_others_send_does_not(
    page: CursorPage,
) -> None:
    node = Node(page, waits_for_sync=False)
    node.hear(begins(RUN + 1, OTHER), entry(5, source=OTHER), begins(), entry(5))
    before = list(node.log)
    node.let_run()
    node.run.turn(is_heard=False)
    node.hear(entry(6, source=OTHER))

    assert before == []
    assert node.log == [b"5"]


@pytest.mark.parametrize(
    "fed",
    [entry(6), entry(5, term=4), (LEADER, [memoryview(b"\7"), memoryview(b"")])],
    ids=["gap", "term", "kind"],
)
def test_what_raft_has_to_judge_is_given_back(page: CursorPage, fed: Fed) -> None:
    node = Node(page, waits_for_sync=False)
    node.let_run()
    node.hear(begins(), fed, entry(5))

    assert [parse(order) for order in node.raft.orders] == [RunGivenBack(RUN)]
    assert node.log == []
    assert node.feed.answers == []


def test_what_there_is_no_room_for_is_not_answered(page: CursorPage) -> None:
    node = Node(page, waits_for_sync=False)
    node.let_run()
    node.has_room = False
    node.hear(begins(), entry(5))

    assert [parse(order) for order in node.raft.orders] == [RunGivenBack(RUN)]
    assert node.feed.answers == []
    assert page.read_heard()[0] != RUN


def test_nothing_is_taken_behind_the_end_of_a_run_however_close(page: CursorPage) -> None:
    node = Node(page, waits_for_sync=False)
    node.let_run()
    late = threading.Thread(target=node.hear, args=(begins(), entry(5)))
    with RunFence(page.path.with_name("run.lock")):
        late.start()
        page.publish_run(None)
    late.join()

    assert node.log == []
    assert node.feed.answers == []


def test_an_older_run_is_none_when_a_later_one_has_begun(page: CursorPage) -> None:
    node = Node(page, waits_for_sync=False)
    node.let_run(RUN + 1)
    node.let_run(RUN)
    node.hear(begins(RUN), entry(5))

    assert node.log == []
