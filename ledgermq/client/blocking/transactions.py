"""``TransactionalProducer``: messages that become visible together, or never.

Its messages are stored at once, as half messages that no consumer sees. ``commit`` makes all of one
transaction visible, ``rollback`` none. When a producer dies between, or the broker's answer is
lost, the broker asks the producers of the group how the transaction ended: that is what the
*listener* is for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self, Unpack

import zmq

from ledgermq.client.blocking.contact import WaitsForContact
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.core.connection import Context
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.nodes import AnyLink, broker_link
from ledgermq.client.core.requests import Request, RequestPipeline, Result, Steps
from ledgermq.client.core.results import SendResult
from ledgermq.client.first_contact import contact_steps, nodes_of, several_groups
from ledgermq.client.forks import OfOneProcess
from ledgermq.client.sending.frames import OneCallback
from ledgermq.client.sending.known_transactions import TransactionResult
from ledgermq.client.sending.message_options import (
    HalfOptions,
    QueueChoice,
    RequestOptions,
    half_outgoing,
)
from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.transaction_course import TransactionCourse
from ledgermq.client.sending.transaction_parts import HALF, Turns, check_group, check_listener
from ledgermq.client.sending.transaction_requests import (
    POLL_MS,
    TransactionCheck,
    UndecidedTransaction,
    checks_steps,
)
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.hosts.wake_bell import SLEEP_S_MAX, new_bell, wait_for_descriptors
from ledgermq.model.errors import ClosedError, LedgerError
from ledgermq.model.names.transactions import Decision

logger = logging.getLogger(__name__)

Listener = Callable[[UndecidedTransaction], Decision | None]
"""How a transaction ended; None when that is not known (yet): it is asked again later. It may be
one of another producer of the group. Called from a thread of the producer."""

CHECKS_TIMEOUT_S = POLL_MS / 1_000 + 10
CHECKS_RETRY_S = 1.0


class Transaction:
    """Messages that are committed or rolled back together; used by one thread at a time.

    As a context it is committed where the block ends, and rolled back when it raises.
    """

    def __init__(
        self,
        producer: TransactionalProducer,
        course: TransactionCourse,
        *,
        topic: str = "",
        group: str = "",
    ) -> None:
        """A transaction of ``producer``, which makes them; see its ``transaction``."""
        self._producer = producer
        self._begins_in: tuple[str, str] | None = topic, group
        self._course = course
        self._parts = course.begin()
        self._sent: list[SendFuture[SendResult]] = []

    @property
    def id(self) -> str:
        """Names it everywhere: in its messages' properties, and to the listener."""
        return self._parts.id

    def send(
        self, topic: str, body: Body, **options: Unpack[HalfOptions]
    ) -> SendFuture[SendResult]:
        """Store one half message; the future of where. The arguments are those of ``Producer``.

        In a cluster it goes to the group that the first one has gone to.

        Raises:
            LedgerError: as from ``Producer.send``; or the transaction is full, or has been ended.
        """
        if self._begins_in is not None:
            begins_at, group = self._begins_in
            self._producer = self._producer.home(begins_at or topic, {}, group)
            self._begins_in = None
        producer = self._producer
        if producer.tracing is None:
            future = self._send(topic, body, options)
        else:
            course = producer.tracing.send(
                topic, body, options, client=producer.group, is_half=True
            )
            with course.beginning():
                future = self._send(topic, body, options, course.callback(None))
        self._sent.append(future)
        return future

    def commit(self) -> TransactionResult:
        """Make all messages visible; returns when that is decided, and can be undone by nobody.

        Raises:
            TransactionError: a message was not stored, so all are rolled back; or its topic has one
                of its unique id already (``duplicates`` names them).
            TransactionUnknownError: the broker knows nothing of it: nobody has committed it in all
                the time that the broker asks for, or its messages are older than what is kept.
            TransactionEndedError: the listener of a producer of the group has rolled it back.
            OutcomeUnknownError: no answer in time. It will be committed when the broker asks, if
                this producer, or the listener of another one, is there to answer.
        """
        self._parts.close()
        stored, error = self._outcomes()
        return self._producer.run(self._course.commit(self._parts, stored, error))

    def rollback(self) -> TransactionResult:
        """Let no message ever be visible.

        Raises:
            TransactionEndedError: the listener of a producer of the group has committed it.
            OutcomeUnknownError: no answer in time; the broker will ask, and be told.
        """
        self._parts.close()
        # What was not stored needs no rollback; what perhaps was is told when it is asked for.
        stored, _ = self._outcomes()
        return self._producer.run(self._course.end(self._parts, Decision.ROLLBACK, stored))

    def leave_open(self) -> TransactionResult:
        """End nothing: the broker will ask the listener later."""
        self._parts.close()
        return self._course.leave(self._parts, *self._outcomes())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if self._parts.is_closed:
            return
        if kind is None:
            self.commit()
            return
        self._parts.close()
        stored, _ = self._outcomes()
        self._producer.run(self._course.end_badly(self._parts, stored))

    def _send(
        self, topic: str, body: Body, options: HalfOptions, callback: OneCallback | None = None
    ) -> SendFuture[SendResult]:
        choice, message = half_outgoing(topic, body, **options)
        queue_id = self._producer.choose_queue(topic, choice)
        half = self._parts.add(topic, queue_id, message)
        return self._producer.send_half(half, callback=callback)

    def _outcomes(self) -> tuple[list[SendResult], LedgerError | None]:
        """Where the messages are that are stored, and why the first that is not is not."""
        stored: list[SendResult] = []
        first: LedgerError | None = None
        for future in self._sent:
            try:
                stored.append(future.result())
            except LedgerError as error:
                first = first or error
            except BaseException:
                # Broken off before it was decided.
                self._course.give_up(self._parts)
                raise
        return stored, first


class TransactionalProducer(WaitsForContact):
    """Sends messages in transactions to a node, or to the leader of a group of nodes.

    The first call, or with a listener the thread that waits for questions, asks whether there is
    one group of nodes or a cluster. In a cluster each transaction is in one group, from its
    beginning to its end: that group alone knows what became of it, and asks for that. A listener
    may be called from a thread of each group.

    Safe to share among threads; each transaction belongs to one at a time. It survives a change of
    leader: what was asked is asked of the next one.
    """

    # The end of a transaction has more to do after an error.
    AFTER_CLOSE = frozenset({"run"})

    ASKS_NOBODY = frozenset({"home", "run", "send", "transaction"})

    IN_CLUSTER = "ledgermq.client.clusters.cluster_clients:TransactionalProducerOfGroups"

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        listener: Listener | None = None,
        name: str = "transactional-producer",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
        one_group: bool = False,
        producer: Producer | None = None,
        course: TransactionCourse | None = None,
    ) -> None:
        """A producer, which connects in the background; see ``Producer`` for the other arguments.

        Args:
            group: of producers that may answer for one another: those of one application, in each
                group of nodes.
            listener: is asked how a transaction ended that this producer does not know, or no more.
                Without one only this producer's own transactions are answered for.
            producer: stores the half messages in the place of one with these arguments; its owner
                closes it.
            course: of the transactions, in the place of one of its own.

        Raises:
            ConfigError: the group has no name; or as from ``Producer``.
            NotLeaderError: the broker of the only node does not answer over tcp.
        """
        self.group = check_group(group)
        self._are_several = several_groups(address) is not None
        check_listener(listener)
        self._listener = listener
        on_end = None if tracing is None else tracing.ended
        self._course = course or TransactionCourse(self.group, on_end)
        self.tracing = tracing
        self._turns = Turns()
        self._turns_lock = threading.Lock()
        self._own_producer = None
        if producer is None:
            producer = self._own_producer = Producer(
                address, name=name, options=options, keys=keys, one_group=one_group
            )
        self._producer = producer
        self.options = self._producer.options
        context: Context = zmq.Context.instance()
        link = broker_link(context, parse_addresses(nodes_of(address)), client=name)
        self._calls = CallThread(link, name=f"ledgermq-{name}-calls")
        self._closing = threading.Event()
        self._answering: threading.Thread | None = None
        self._name = name
        self._begin_contact(one_group=one_group)
        if listener is not None:
            self._answer_checks()

    def groups(self) -> list[str]:
        """Names of the groups of nodes that are known now."""
        return self._producer.groups()

    def of(self, group: str) -> TransactionalProducer:
        """The producer of one group of a cluster, which this one closes.

        Raises:
            ConfigError: no such group is known.
        """
        self._producer.of(group)
        return self

    def transaction(self, topic: str = "", *, group: str = "") -> Transaction:
        """Begin a transaction; nothing is sent before its first message.

        In a cluster all of its messages go to one group, also those of other topics, which it has
        to have; a ``queue_key`` chooses among its queues alone.

        Args:
            topic: begin it in a group that has this topic; that of the first message when left out.
            group: of nodes, to begin it in; without it, one that has the topic.
        """
        self._answer_checks()
        return Transaction(self, self._course, topic=topic, group=group)

    def send(
        self,
        topic: str,
        body: Body,
        local: Callable[[str], Decision | None],
        *,
        group: str = "",
        **options: Unpack[HalfOptions],
    ) -> TransactionResult:
        """Store a half message, do what it tells of, and end it as that went.

        Args:
            group: of nodes, to store it in; without it, one that has the topic.
            local: the application's own work, for example a transaction of its database; gets the
                transaction's id, under which it should note what it has done, for the listener.
                None leaves the end open. When it raises, the message is rolled back.

        Raises:
            LedgerError: the message was not stored, and ``local`` was not called; or as from
                ``Transaction.commit`` and ``rollback``.
        """
        with self.home(topic, options, group).transaction() as transaction:
            transaction.send(topic, body, **options).result()
            decision = local(transaction.id)
            if decision is Decision.COMMIT:
                return transaction.commit()
            if decision is Decision.ROLLBACK:
                return transaction.rollback()
            return transaction.leave_open()

    def close(self, timeout: float | None = None) -> None:
        """Say goodbye; open transactions are asked for later, of other producers of the group."""
        self._closing.set()
        self._calls.close()
        self._end_contact()
        if self._answering is not None:
            self._answering.join()
        if self._several is not None:
            self._several.close()
        if self._own_producer is not None:
            self._own_producer.close(timeout)

    def home(self, topic: str, options: RequestOptions, group: str) -> TransactionalProducer:
        """The producer of the group that a transaction is in; for ``Transaction``.

        Raises:
            LedgerError: no group can be chosen, or reached; as from ``Producer.send``.
        """
        if self._make_contact() is None:
            return self.of(group) if group else self
        until = time.monotonic() + self.options.timeout_s
        found: TransactionalProducer
        found = self._several.chosen(topic, options, group=group, until=until)
        found._answer_checks()
        return found

    def choose_queue(self, topic: str, choice: QueueChoice) -> int:
        """The queue for a message of a transaction; for ``Transaction``."""
        queues = self._producer.write_queues(topic)
        with self._turns_lock:
            return self._turns.choose(choice, queues)

    def send_half(
        self, message: OutgoingMessage, *, callback: OneCallback | None = None
    ) -> SendFuture[SendResult]:
        """Store a half message; for ``Transaction``."""
        return self._producer.send_to(HALF, message, callback=callback)

    def run(self, steps: Steps[Result]) -> Result:
        """What ``steps`` come to; for ``Transaction``."""
        return self._calls.run(steps, timeout_s=self.options.timeout_s)

    def _answer_checks(self) -> None:
        if self._answering is None:
            with self._turns_lock:
                if self._answering is None:
                    self._answering = threading.Thread(
                        target=self._answer_all, name=f"ledgermq-{self._name}-checks", daemon=True
                    )
                    self._answering.start()

    def _answer_all(self) -> None:
        """Wait for questions, and answer them, until the producer is closed."""
        if not self._is_of_one_group():
            # What it has for each group answers there.
            return
        while not self._closing.is_set():
            try:
                checks = self._calls.run(checks_steps(self.group), timeout_s=CHECKS_TIMEOUT_S)
            except LedgerError as error:
                if not self._closing.is_set():
                    logger.debug("no questions about transactions: %s", error)
                    self._closing.wait(CHECKS_RETRY_S)
                continue
            for check in checks:
                if not self._closing.is_set():
                    self._answer(check)

    def _is_of_one_group(self) -> bool:
        """Whether there is one group of nodes; waits until that is known."""
        while not self._closing.is_set():
            try:
                return self._make_contact() is None
            except LedgerError as error:
                logger.debug("no word about groups: %s", error)
                self._closing.wait(CHECKS_RETRY_S)
        return False

    def _ask_groups(self) -> KnownGroups | None:
        if not self._are_several:
            # Who closes this ends that question.
            told = self._calls.run(contact_steps(), timeout_s=self.options.timeout_s)
            if told is None:
                return None
        return self._producer.contact()

    def _leave_group(self) -> None:
        self._calls.close()

    def _answer(self, check: TransactionCheck) -> None:
        has_listener = self._listener is not None
        try:
            found = self.run(self._course.look_up(check, has_listener=has_listener))
            if isinstance(found, UndecidedTransaction):
                found = self._listened(found)
            if found is not None:
                self.run(self._course.answer(check, found))
        except LedgerError as error:
            logger.warning("transaction not ended: id=%s: %s", check.transaction, error)

    def _listened(self, undecided: UndecidedTransaction) -> Decision | None:
        assert self._listener is not None
        try:
            return self._listener(undecided)
        except Exception:
            # The application's error must not end the answers to all others.
            logger.exception("listener failed: transaction=%s", undecided.id)
            return None


class CallThread(OfOneProcess):
    """Background thread for calls of other threads, any number of them at a time.

    It owns a link, which it alone uses.

    Invariant, under ``_lock``: a question that is not answered is in ``_unanswered``.
    """

    def __init__(self, link: AnyLink, *, name: str) -> None:
        """Start the thread; it connects with the first question."""
        self._requests = RequestPipeline(link)
        self._lock = threading.Lock()
        self._fresh: list[Request] = []
        self._unanswered: dict[int, threading.Event] = {}
        self._is_closing = False
        self._has_asked = False
        self._bell = new_bell()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._belong()

    def run(self, steps: Steps[Result], *, timeout_s: float) -> Result:
        """What ``steps`` come to, asked one after the other; from any thread.

        Args:
            timeout_s: for each question.

        Raises:
            LedgerError: the broker refused one, or did not answer; or this was closed.
        """
        while True:
            try:
                request = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            request.deadline = time.monotonic() + timeout_s
            self._ask(request)

    def close(self) -> None:
        """Say goodbye; who still waits for an answer is told that there is none."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        self._bell.ring()
        self._thread.join()

    def _leave(self) -> None:
        """Leave all to the parent: its thread is not there to answer."""
        self._lock = threading.Lock()
        self._is_closing = True

    def _ask(self, request: Request) -> None:
        answered = threading.Event()

        def note(_: Request) -> None:
            with self._lock:
                del self._unanswered[id(request)]
            answered.set()

        request.callback = note
        with self._lock:
            if self._is_closing:
                request.error = ClosedError("producer is closed")
                return
            self._unanswered[id(request)] = answered
            self._fresh.append(request)
        self._bell.ring()
        answered.wait()
        if not request.done():
            # The steps are told like of any other failure: some have more to do after one.
            request.error = ClosedError("producer was closed before the broker answered")

    def _run(self) -> None:
        link = self._requests.link
        while True:
            with self._lock:
                fresh, self._fresh = self._fresh, []
                is_closing = self._is_closing
            if is_closing:
                break
            for request in fresh:
                self._has_asked = True
                self._requests.ask(request)
            now = time.monotonic()
            if self._has_asked:
                self._requests.advance(now)
            self._sleep(self._requests.deadline - now if self._has_asked else SLEEP_S_MAX)
        link.close()
        with self._lock:
            waiting = list(self._unanswered.values())
        for answered in waiting:
            answered.set()

    def _sleep(self, seconds: float) -> None:
        wait_for_descriptors((self._bell.descriptor, *self._requests.link.descriptors), seconds)
        self._bell.clear()
