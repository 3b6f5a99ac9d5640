"""Documents from the home to other groups: asked for, held, proposed, and whom they are given."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call
from ledgermq.broker.cluster import cluster_service, document_messages
from ledgermq.broker.cluster.cluster_service import ClusterService
from ledgermq.broker.cluster.document_messages import ask_fields, read_reply
from ledgermq.broker.cluster.home_questions import Answered
from ledgermq.broker.service import Mailbox
from ledgermq.broker.state.state_requests import Reply
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.model.config.settings import AccessSection, NodeSection, Settings, StoreSection
from ledgermq.model.errors import BusyError, LedgerError, NoPermissionError, NotLeaderError
from ledgermq.model.features import LEVEL
from ledgermq.rules.access.access import User, UserTable
from ledgermq.rules.cluster.certificates import Certificate, certify
from ledgermq.rules.cluster.cluster_plans import plan_row
from ledgermq.rules.cluster.document_asker import HOLD_MS, PROBE_MS, Question
from ledgermq.rules.cluster.document_desk import DocumentRequest
from ledgermq.rules.cluster.json_objects import Object
from ledgermq.rules.cluster.numbered_rows import RowKey
from ledgermq.rules.cluster.signatures import SigningKey
from ledgermq.rules.state.cluster_copy import ClusterCopy
from ledgermq.rules.tables.topics import TopicTable
from ledgermq.sessions.keys.user_secrets import UserSecrets
from tests.unit.broker.answers import answers

ROOT = SigningKey(b"r" * 32)
A, B = "tcp://10.0.0.1:10912", "tcp://10.0.0.2:10912"
USER = RowKey("user", "u")
NOW_MS = 1_700_000_000_000
CLOCK: Any = SimpleNamespace(epoch_ns=lambda: NOW_MS * 1_000_000)


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


class Line:
    """The way to other groups, whose answers a test gives."""

    descriptor = -1

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.answer: Answered | None = None

    @property
    def is_free(self) -> bool:
        return not self.asked

    def ask(self, question: Question) -> None:
        self.asked.append(question)

    def take(self) -> Answered | None:
        found, self.answer = self.answer, None
        if found is not None:
            self.asked.clear()
        return found

    def close(self) -> None:
        return


class FakeLog:
    """Applies what is submitted with the next turn."""

    term, is_certain, is_held_up = 1, True, False

    def __init__(self, copy: ClusterCopy) -> None:
        self._copy = copy
        self.waiting: list[Any] = []

    def submit(self, request: Any, _now_ms: int) -> None:
        if not self.is_certain:
            raise NotLeaderError("node does not lead now")
        self.waiting.append(request)

    def check(self) -> None:
        return

    def check_newest(self) -> None:
        self.check()

    def check_leads(self) -> None:
        return

    def turn(self) -> None:
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            for change in request.plan():
                self._copy.apply(change, 0, 0)
            request.answer()


class Group:
    """The leader of a group, its service, and what it answered."""

    def __init__(self, folder: Path, name: str) -> None:
        settings = Settings(store=StoreSection(path_root_dir=folder / name))
        self.copy, self.users, self.line = ClusterCopy(), UserTable(), Line()
        self.mailbox, self.log = Mailbox(), FakeLog(self.copy)
        tables: Any = SimpleNamespace(
            cluster=self.copy,
            node=NodeSection(broker_name=name),
            secrets=UserSecrets(settings),
            users=self.users,
            topics=TopicTable(),
            features=SimpleNamespace(level=LEVEL),
        )
        log, known = cast(Any, self.log), cast(Any, SimpleNamespace(first_offsets=lambda _: {}))
        self.counts = [0] * len(BrokerCounter)
        self.service = ClusterService(
            known, tables, log, self.line, AccessSection(),
            mailbox=self.mailbox, clock=CLOCK, counts=self.counts,
        )  # fmt: skip
        self._answers = answers(self.service.verbs)

    def turn(self, now_ms: int) -> list[Reply]:
        self.log.turn()
        self.service.turn(now_ms)
        return self.mailbox.take()

    def ask(self, verb: str, now_ms: int = 0, *, client: bytes = b"c", **arguments: Any) -> Any:
        return self.ask_as(verb, now_ms, client=client, by="", is_admin=True, **arguments)

    def ask_as(
        self, verb: str, now_ms: int, *, client: bytes, by: str, is_admin: bool, **arguments: Any
    ) -> Any:
        call = Call(Caller(client, 1), arguments, now_ms, user=by, is_admin=is_admin)
        return self._answers[verb](call)

    def change(self, key: RowKey, value: Object | None) -> None:
        for command in plan_row(self.copy.table, key, value):
            self.copy.apply(command, 0, 0)

    def question(self, hold_ms: int = HOLD_MS, piece: int = 0) -> dict[str, object]:
        """As this group asks."""
        table = self.copy.table
        chain = table.chain.signed() if table.chain else []
        request = DocumentRequest(table.group, chain, table.rows_rank, table.at)
        return ask_fields(request, hold_ms=hold_ms, piece=piece)


@pytest.fixture
def home(tmp_path: Path) -> Group:
    made = Group(tmp_path, "a")
    own = made.ask("cluster_key")
    key = base64.b64decode(own["key"])
    chain = [certify(ROOT, Certificate("c", 1, True, "a", key, 0, b"")).signed]
    made.ask(
        "cluster_begin", cluster="c", root=b64(ROOT.public), chain=[*map(b64, chain)], nodes=[A]
    )
    made.log.turn()
    made.ask("cluster_group_set", group="b", nodes=[B])
    made.log.turn()
    return made


@pytest.fixture
def other(home: Group, tmp_path: Path) -> Group:
    made = Group(tmp_path, "b")
    told = home.ask("cluster_show")
    made.ask(
        "cluster_join", cluster="c", root=told["root"], chain=told["chain"],
        nodes=told["home_nodes"],
    )  # fmt: skip
    made.log.turn()
    return made


def pass_on(home: Group, other: Group, now_ms: int) -> Any:
    """Have the home answer what the other group asks, at once or held."""
    (question,) = other.line.asked
    fields = ask_fields(question.asked, hold_ms=question.hold_ms, piece=0)
    found = home.ask("cluster_documents", now_ms, **fields)
    if found is None:
        return None
    deliver(other, question, found)
    return found


def deliver(other: Group, question: Question, found: Any) -> None:
    piece = read_reply(found)
    reply = piece.reply._replace(document=piece.content or None)
    other.line.answer = Answered(question.number, reply)


def test_a_group_has_the_rows_of_the_home_and_then_each_change_at_once(
    home: Group, other: Group
) -> None:
    other.turn(0)
    pass_on(home, other, 0)
    other.turn(10)
    other.turn(20)

    assert other.copy.table.nodes_of("b") == [B]
    assert other.service.age(30).current_ms == 30
    assert other.counts[BrokerCounter.CLUSTER_CURRENT_AT] == NOW_MS - 20
    assert home.counts[BrokerCounter.CLUSTER_CURRENT_AT] == 0
    (question,) = other.line.asked
    assert question.hold_ms == HOLD_MS
    assert pass_on(home, other, 30) is None
    assert home.turn(40) == []
    home.change(USER, {"topicPerms": ["t=PUB"]})
    (told,) = home.turn(50)
    deliver(other, question, told.outcome)
    other.turn(60)
    other.turn(70)

    assert other.copy.table.rows.value(USER) == {"topicPerms": ["t=PUB"]}
    assert other.copy.table.at == home.copy.table.at


def test_a_question_is_held_for_its_time_and_then_says_that_nothing_is_new(
    home: Group, other: Group
) -> None:
    other.turn(0)
    pass_on(home, other, 0)
    other.turn(10)
    other.turn(20)
    pass_on(home, other, 20)

    assert home.service.next_deadline_ms() == 20 + HOLD_MS
    assert home.turn(20 + HOLD_MS - 1) == []
    (told,) = home.turn(20 + HOLD_MS)
    assert isinstance(told.outcome, dict)
    assert (told.outcome["pieces"], told.outcome["is_current"]) == (0, True)


def test_nothing_is_done_where_there_is_no_cluster(tmp_path: Path) -> None:
    lonely = Group(tmp_path, "a")

    assert lonely.turn(0) == []
    assert (lonely.line.asked, lonely.service.next_deadline_ms()) == ([], None)


def test_who_does_not_lead_asks_nobody(home: Group, other: Group) -> None:
    other.log.is_certain = False
    other.turn(0)
    assert (other.line.asked, other.service.next_deadline_ms()) == ([], None)

    other.log.is_certain = True
    other.turn(10)
    assert [one.address for one in other.line.asked] == [A]


def test_a_home_alone_does_not_look_all_the_time(home: Group) -> None:
    home.change(RowKey("group", "b"), None)
    home.turn(100)

    assert (home.line.asked, home.service.next_deadline_ms()) == ([], 100 + PROBE_MS)


def test_an_answer_for_a_group_that_has_left_meanwhile_is_let_go(home: Group, other: Group) -> None:
    other.turn(0)
    pass_on(home, other, 0)
    other.ask("cluster_leave")
    other.turn(10)

    assert other.line.is_free
    assert (other.turn(20), other.service.next_deadline_ms()) == ([], None)
    assert other.copy.to_document() == {}


def test_a_member_that_fails_is_named_and_the_next_one_asked(home: Group, other: Group) -> None:
    other.turn(0)
    (question,) = other.line.asked
    other.line.answer = Answered(question.number, None, "node does not answer")
    other.turn(10)

    assert other.service.age(10).failure == "node does not answer"
    other.turn(other.service.next_deadline_ms() or 0)
    assert other.line.asked[0].number > question.number


def test_nobody_but_a_groups_user_or_an_admin_is_given_documents(home: Group, other: Group) -> None:
    for name in ("other", "stranger"):
        home.users.put(User(name=name, topics={}, groups={}))
    home.ask("cluster_group_set", group="b", nodes=[B], user="other")
    home.log.turn()
    fields = other.question(0)

    def asks(user: str, *, is_admin: bool = False) -> Any:
        return home.ask_as(
            "cluster_documents", 0, client=b"c", by=user, is_admin=is_admin, **fields
        )

    assert asks("other")["pieces"] == 1
    assert asks("", is_admin=True)["pieces"] == 1
    for user in ("stranger", ""):
        with pytest.raises(NoPermissionError, match="may not ask for the cluster's documents"):
            asks(user)


def test_who_loses_the_right_while_a_question_is_held_gets_nothing(
    home: Group, other: Group
) -> None:
    home.users.put(User(name="other", topics={}, groups={}))
    home.ask("cluster_group_set", group="b", nodes=[B], user="other")
    home.log.turn()
    other.turn(0)
    pass_on(home, other, 0)
    other.turn(10)
    other.turn(20)
    held = home.ask_as(
        "cluster_documents", 20, client=b"c", by="other", is_admin=False, **other.question()
    )
    home.users.delete("other")
    home.change(USER, {"n": 1})
    (told,) = home.turn(30)

    assert held is None
    assert isinstance(told.outcome, NoPermissionError)


def test_so_many_questions_are_held_and_no_more_and_one_a_client(
    home: Group, other: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_service, "HELD_QUESTIONS_MAX", 2)
    other.turn(0)
    pass_on(home, other, 0)
    other.turn(10)
    other.turn(20)
    fields = other.question()
    for client in (b"1", b"2", b"2"):
        assert home.ask("cluster_documents", client=client, **fields) is None
    (again,) = home.mailbox.take()

    assert isinstance(again.outcome, BusyError)
    with pytest.raises(BusyError, match="limit=2"):
        home.ask("cluster_documents", client=b"3", **fields)
    home.service.end_all()
    assert [type(one.outcome) for one in home.mailbox.take()] == [BusyError, BusyError]


def test_a_large_document_comes_in_pieces_of_one_digest(
    home: Group, other: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_messages, "PIECE_SIZE", 64)
    first = read_reply(home.ask("cluster_documents", **other.question()))
    pieces = [
        read_reply(home.ask("cluster_documents", **other.question(piece=piece)))
        for piece in range(first.pieces)
    ]

    assert first.pieces > 2
    assert {one.digest for one in pieces} == {first.digest}
    document = b"".join(one.content for one in pieces)
    assert document_messages.content_digest(document).hex() == first.digest


def test_a_home_that_hears_of_the_next_one_has_its_certificates(home: Group, other: Group) -> None:
    later = certify(ROOT, Certificate("c", 2, True, "b", SigningKey(b"b" * 32).public, 0, b""))
    fields = {**other.question(), "chain": [b64(later.signed)]}
    home.ask("cluster_documents", **fields)
    home.log.turn()

    assert (home.copy.table.home, home.copy.table.is_home) == ("b", False)


def test_a_home_hands_over_to_a_group_that_waits_and_asks_it_from_then_on(
    home: Group, other: Group
) -> None:
    with pytest.raises(BusyError, match="does not ask"):
        home.ask("cluster_hand_over", group="b")
    other.turn(0)
    pass_on(home, other, 0)
    other.turn(10)
    other.turn(20)
    (question,) = other.line.asked
    assert pass_on(home, other, 20) is None
    home.ask("cluster_hand_over", group="b")
    (told,) = home.turn(30)
    assert (home.copy.table.home, home.copy.table.is_home) == ("b", False)
    deliver(other, question, told.outcome)
    other.turn(40)
    other.turn(50)
    assert (other.copy.table.is_home, other.ask("cluster_show")["signs"]) == (True, True)
    other.change(USER, {"n": 1})
    home.turn(50 + PROBE_MS)
    pass_on(other, home, 50 + PROBE_MS)
    home.turn(60 + PROBE_MS)
    home.turn(70 + PROBE_MS)

    shown = home.ask("cluster_show", 80 + PROBE_MS)
    assert shown["rows_rank"] == shown["rank"]
    assert home.copy.table.rows.value(USER) == {"n": 1}


def test_rights_are_refused_when_the_home_is_not_heard_and_again_when_it_is(
    home: Group, other: Group
) -> None:
    access = AccessSection(cluster_rights_max_age_s=60)
    other.service.take_settings(Settings(access=access))
    table, told = other.copy.table, other.counts
    other.turn(0)
    other.turn(0)
    before = table.rights_too_old, told[BrokerCounter.CLUSTER_RIGHTS_TOO_OLD]
    for now_ms in (0, 10, 20):
        pass_on(home, other, now_ms)
        other.turn(now_ms + 5)
        other.turn(now_ms + 6)
    heard = table.rights_too_old, other.service.next_deadline_ms()
    confirmed_ms = table.confirmed_ms
    other.line.asked.clear()
    other.turn(60_000)
    other.turn(60_000)
    kept = table.rights_too_old
    other.turn(60_100)
    other.turn(60_100)

    assert before == (False, 0), "there are no rights yet"
    assert heard[0] is False and heard[1] is not None and heard[1] <= 60_100
    assert NOW_MS - 20 <= confirmed_ms <= NOW_MS
    assert kept is False
    assert table.rights_too_old
    assert other.ask("cluster_show")["rights_too_old"] is True
    other.service.take_settings(Settings())
    other.turn(60_200)
    other.turn(60_200)
    assert not table.rights_too_old


def test_a_home_that_hands_over_says_that_its_rights_are_those_of_now(
    home: Group, other: Group
) -> None:
    other.turn(0)
    pass_on(home, other, 0)
    other.turn(10)
    other.turn(20)
    pass_on(home, other, 20)
    home.ask("cluster_hand_over", group="b")
    home.log.turn()

    assert (home.copy.table.confirmed_ms, home.copy.table.rights_too_old) == (NOW_MS, False)


def test_a_home_is_not_handed_over_by_a_question_of_who_has_lost_the_right(
    home: Group, other: Group
) -> None:
    home.users.put(User(name="other", topics={}, groups={}))
    home.ask("cluster_group_set", group="b", nodes=[B], user="other")
    home.log.turn()
    other.turn(0)
    pass_on(home, other, 0)
    other.turn(10)
    fields = {**other.question(), "key": b64(SigningKey(b"b" * 32).public)}
    home.ask_as("cluster_documents", 20, client=b"c", by="other", is_admin=False, **fields)
    home.users.delete("other")

    with pytest.raises(BusyError, match="does not ask"):
        home.ask("cluster_hand_over", group="b")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group", 7),
        ("chain", ["%"]),
        ("rank", -1),
        ("at", [1]),
        ("hold_ms", "long"),
        ("piece", None),
        ("key", "AAAA" * 16),
    ],
)
def test_a_question_of_another_shape_is_refused(
    home: Group, other: Group, name: str, value: object
) -> None:
    with pytest.raises(LedgerError):
        home.ask("cluster_documents", **{**other.question(), name: value})
