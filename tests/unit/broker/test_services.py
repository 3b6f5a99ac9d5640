"""The list of the broker's services: each gets all that is done with services, none is missed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ledgermq.broker.broker_process import BrokerWorker
from ledgermq.broker.callers import Caller
from ledgermq.broker.service import REST_MS, REST_MS_MAX, Mailbox, Service, Services
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_requests import Reply
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.config.settings import ListenSection, Settings, StoreSection
from ledgermq.model.errors import DiskFullError, MessageIllegalError
from ledgermq.process.node import Surroundings
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.sessions.request_faults import let_through
from ledgermq.store.files.store_paths import StorePaths

VERBS = ("notice_growth", "turn", "next_deadline_ms", "take_settings", "end_all")
"""All that is done with each service, but for what is asked of those that may say yes."""


class Noting(Service):
    """Notes what is done with it; answers one call in each turn, and at the end."""

    def __init__(self, name: str, mailbox: Mailbox) -> None:
        self.name = name  # type: ignore[misc]
        self.calls: list[str] = []
        self.deadline_ms: int | None = None
        self.waits = self.lags = False
        self._mailbox = mailbox

    @property
    def awaits(self) -> bool:
        return self.waits

    @property
    def is_behind(self) -> bool:
        return self.lags

    def notice_growth(self, now_ms: int) -> None:
        self.calls.append("notice_growth")

    def turn(self, now_ms: int) -> None:
        self.calls.append("turn")
        self._mailbox.append(Reply(Caller(self.name.encode(), now_ms), {}))

    def next_deadline_ms(self) -> int | None:
        self.calls.append("next_deadline_ms")
        return self.deadline_ms

    def take_settings(self, settings: Settings) -> None:
        self.calls.append("take_settings")

    def end_all(self) -> None:
        self.calls.append("end_all")
        self._mailbox.append(Reply(Caller(self.name.encode(), -1), {}))


class Failing(Service):
    """Its turns end as it is told."""

    name = "failing"
    can_rest = True

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.turns = self.begun = 0

    @property
    def is_behind(self) -> bool:
        return True

    def turn(self, now_ms: int) -> None:
        self.turns += 1
        if self.error is not None:
            raise self.error

    def next_deadline_ms(self) -> int | None:
        return 1

    def begin_again(self) -> None:
        self.begun += 1


def test_each_service_gets_each_call_and_its_answers_are_sent() -> None:
    mailbox = Mailbox()
    noting = [Noting(f"{number}", mailbox) for number in range(4)]
    services = Services(tuple(noting), mailbox, let_through)
    sent: list[Reply] = []
    services.notice_growth(7)
    services.turn(7, sent.append)
    services.next_deadline_ms()
    services.take_settings(Settings())
    services.end_all(sent.append)

    assert [one.calls for one in noting] == [list(VERBS)] * 4
    names = [b"0", b"1", b"2", b"3"]
    assert [reply.caller for reply in sent] == [
        *(Caller(name, 7) for name in names),
        *(Caller(name, -1) for name in names),
    ]
    assert not mailbox


def test_what_one_service_says_is_what_all_say() -> None:
    mailbox = Mailbox()
    noting = [Noting(f"{number}", mailbox) for number in range(3)]
    services = Services((*noting, Service()), mailbox, let_through)
    before = services.awaits, services.is_behind, services.next_deadline_ms()
    noting[1].waits = noting[2].lags = True
    noting[0].deadline_ms, noting[2].deadline_ms = 9, 5

    assert before == (False, False, None)
    assert (services.awaits, services.is_behind, services.next_deadline_ms()) == (True, True, 5)


def test_an_answer_that_is_not_sent_yet_is_something_to_do_at_once() -> None:
    mailbox = Mailbox()
    services = Services((), mailbox, let_through)
    mailbox.append(Reply(Caller(b"c", 1), {}))

    assert services.is_behind
    services.turn(0, lambda reply: None)
    services.end_all(lambda reply: None)
    assert not services.is_behind


def test_a_service_that_fails_rests_longer_each_time_and_others_have_their_turn() -> None:
    met: list[Exception] = []

    def contain(error: Exception) -> MessageIllegalError:
        met.append(error)
        return MessageIllegalError("bug")

    failing, mailbox = Failing(KeyError("bug")), Mailbox()
    other = Noting("other", mailbox)
    services = Services((failing, other), mailbox, contain)

    def run(now_ms: int) -> int:
        before = failing.turns
        services.turn(now_ms, lambda reply: None)
        return failing.turns - before

    tried = [run(now_ms) for now_ms in (0, REST_MS - 1, REST_MS, 2 * REST_MS, 10 * REST_MS)]

    assert (tried, len(met), failing.begun) == ([1, 0, 1, 0, 1], 3, 3)
    assert other.calls == ["turn"] * 5
    assert not services.is_behind
    assert services.next_deadline_ms() == 14 * REST_MS
    for number in range(10):
        run((number + 1) * 10 * REST_MS_MAX)

    assert services.next_deadline_ms() == 100 * REST_MS_MAX + REST_MS_MAX

    failing.error = None

    assert run(200 * REST_MS_MAX) == 1
    assert services.is_behind
    assert services.next_deadline_ms() == 1


@pytest.mark.parametrize("error", [DiskFullError("full", errno=28), OSError(5, "x"), MemoryError()])
def test_what_the_disk_refuses_ends_the_process(error: Exception) -> None:
    services = Services((Failing(error),), Mailbox(), let_through)

    with pytest.raises(type(error)):
        services.turn(0, lambda reply: None)


class NoConsumers:
    """A broker's side towards clients, of whom there are none."""

    sources: list[Any] = []  # noqa: RUF012

    def send_answers(self, answers: object) -> None:
        """There are none."""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Surroundings]:
    settings = Settings(
        store=StoreSection(path_root_dir=tmp_path / "store"),
        listen=ListenSection(runtime_dir=tmp_path / "run"),
    )
    StorePaths.of(settings).topics.parent.mkdir(parents=True)
    (tmp_path / "run").mkdir()
    CursorPage.create(RuntimePaths(tmp_path / "run").cursors).close()
    made = Surroundings.enter(Role.BROKER, settings)
    yield made
    made.leave()


def living_services() -> dict[int, Service]:
    """All that there are in this process, by what tells each from the others."""
    return {id(one): one for one in gc.get_objects() if issubclass(type(one), Service)}


def _kind(service: Service) -> str:
    return type(service).__name__


def test_a_service_that_the_broker_makes_is_in_its_list(
    environment: Surroundings,
) -> None:
    before = living_services()
    tables = BrokerTables(StorePaths.of(environment.settings).topics.parent, environment.settings)
    worker = BrokerWorker(environment, tables, lambda *_: cast("Any", NoConsumers()))
    made = [one for number, one in living_services().items() if number not in before]
    tables.close()

    assert sorted(map(_kind, made)) == sorted(map(_kind, worker.services))
    assert set(map(id, made)) == set(map(id, worker.services))
    names = [service.name for service in worker.services]
    assert all(names) and len(set(names)) == len(names)
