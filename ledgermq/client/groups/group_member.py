"""Life of one group member: subscriptions, and its way to its queues, step by step.

The steps are generators, which ask and tell; ``GroupConsumer`` waits for what they ask, and
``AsyncGroupConsumer`` awaits it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from ledgermq.client.core.address import Address, local_host
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.requests import Request, RequestPipeline, Steps
from ledgermq.client.core.wrong_calls import check_numbers, told_by_name
from ledgermq.client.groups.allocation import Strategy, TopicQueue, check_strategy
from ledgermq.client.groups.group_reader import (
    GroupReader,
    Offsets,
    Rebalance,
    begin_steps,
    check_begin,
    commit_steps,
    leave_steps,
    lock_steps,
    unlock_steps,
)
from ledgermq.client.groups.heartbeats import GroupNews, Heartbeats, HeartbeatState, is_before
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.reading.retries import give_back_requests
from ledgermq.client.reading.start_offsets import Start, checked_group, starting_offsets
from ledgermq.formats.config_json import OFFSET_TABLE
from ledgermq.model.errors import (
    NO_SPACE,
    ConfigError,
    CorruptLogError,
    DiskFullError,
    MessageIllegalError,
    StorageError,
)
from ledgermq.model.message_filter import EVERYTHING, SQL_MARK, MessageFilter
from ledgermq.model.names.group_topics import retry_topic
from ledgermq.model.names.stored_name import is_file_name

OFFSETS_DIRECTORY = "~/.ledgermq_offsets"

_OFFSETS_FILE = "offsets.json"

Model = Literal["clustering", "broadcasting"]
Subscription = Mapping[str, MessageFilter]

Change = Literal["assigned", "revoked", "lost"]


class Notice(NamedTuple):
    """What the application is told: queues that came, that are about to go, or that are gone."""

    change: Change
    queues: tuple[TopicQueue, ...]


Course = Generator[Request | Notice, None, None]
"""Questions to the broker, and notices to the application, one after the other."""


@told_by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """How a member takes part in its group.

    Attributes:
        model: ``clustering``: the members share the queues; ``broadcasting``: each reads all, and
            keeps its offsets in a file of its own machine.
        ordered: the order of each queue is kept, also while its owner changes: the next batch of a
            queue comes once the last one is committed.
        strategy: ``average``: as RocketMQ shares queues by default; ``sticky``: as few queues as
            possible change their owner.
        start: where to begin with a queue without a committed offset: ``first``, ``last``, or a
            time in epoch ms.
        commit_on_revoke: what was given of a queue is committed before the queue is given away.
        offsets_directory: of the files of broadcasting consumers.
        poll_interval_max_s: who asks for no messages for so long gives its queues up.
    """

    model: Model = "clustering"
    ordered: bool = False
    strategy: Strategy = "average"
    start: Start = "first"
    commit_on_revoke: bool = True
    offsets_directory: str | Path = OFFSETS_DIRECTORY
    poll_interval_max_s: float = 300.0

    def __post_init__(self) -> None:
        if self.model not in get_args(Model):
            raise ConfigError("not a model", value=self.model, allowed=get_args(Model))
        check_strategy(self.strategy)
        check_begin(self.start)
        ours = {"ordered": False, "strategy": "average", "commit_on_revoke": True}
        theirs = {"offsets_directory": OFFSETS_DIRECTORY}
        why, unused = (
            ("queues are not shared", ours)
            if self.model == "broadcasting"
            else ("offsets are the broker's", theirs)
        )
        for name, usual in unused.items():
            if getattr(self, name) != usual:
                raise ConfigError(
                    f"{why} when model is {self.model!r}: {name} says nothing",
                    model=self.model, **{name: getattr(self, name)},
                )  # fmt: skip
        check_numbers(self, {"poll_interval_max_s": (1, 86_400)})


class Subscriptions:
    """The topics of a member, until it begins.

    Invariant: nothing is added after ``fixed``.
    """

    def __init__(self) -> None:
        self._topics: dict[str, MessageFilter] = {}
        self._is_fixed = False

    def add(self, topics: str | Sequence[str], wanted: MessageFilter) -> None:
        """Read these topics, too.

        Raises:
            ConfigError: the member has begun, or no topic is named.
        """
        names = [topics] if isinstance(topics, str) else topics
        if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
            raise ConfigError("topic is not a text", topics=topics)
        names = list(names)
        if self._is_fixed:
            raise ConfigError("subscribe before the first poll", topics=names)
        if not all(names) or not names:
            raise ConfigError("no topic to subscribe to", topics=names)
        self._topics |= dict.fromkeys(names, wanted)

    @property
    def are_there(self) -> bool:
        """Whether there are topics."""
        return bool(self._topics)

    def fixed(self) -> dict[str, MessageFilter]:
        """The topics, from now on for good.

        Raises:
            ConfigError: there are none.
        """
        if not self._topics:
            raise ConfigError("consumer has no topic: call subscribe first")
        self._is_fixed = True
        return dict(self._topics)


def client_id(name: str | None, model: Model, places: Sequence[Address]) -> str:
    """The id of a member: its name, or this machine's address, process, and a number.

    Raises:
        ConfigError: it broadcasts, and has no name to keep its offsets under.
    """
    if name:
        return name
    if model == "broadcasting":
        raise ConfigError("broadcasting consumer has no name: its offsets are kept under it")
    return f"{local_host(places)[0]}@{os.getpid()}#{os.urandom(4).hex()}"


class GroupMember:
    """One member; see the module.

    Attributes:
        reader: what it reads.
        heartbeats: what it knows of the others.
    """

    def __init__(
        self,
        requests: RequestPipeline,
        options: GroupOptions,
        consumer_options: ConsumerOptions,
        *,
        group: str,
        client: str,
        subscription: Subscription,
        broker_group: str = "",
    ) -> None:
        """A member that has not begun.

        Args:
            broker_group: name of the group of brokers, of a member that is one in several.

        Raises:
            ConfigError: no group, or a name that cannot be used.
            CorruptLogError, StorageError: the file of a broadcasting member's offsets.
        """
        self.group = checked_group(group)
        self.client = client
        self.options = options
        self._instance = os.urandom(12).hex()
        self._is_broadcasting = options.model == "broadcasting"
        if not self._is_broadcasting:
            # What the group gives back is shared among its members like any topic.
            subscription = {**subscription, retry_topic(self.group): EVERYTHING}
        self._local: LocalOffsets | None = None
        if self._is_broadcasting:
            self._local = LocalOffsets(Path(options.offsets_directory), client, group)
        self.heartbeats = Heartbeats(
            HeartbeatState(
                group=group,
                client=client,
                instance=self._instance,
                host=socket.gethostname(),
                model=options.model,
                start=str(options.start),
                ordered=options.ordered,
                strategy=options.strategy,
                subscription={topic: _text_of(wanted) for topic, wanted in subscription.items()},
            ),
            timeout_s=consumer_options.timeout_s,
        )
        self.reader = GroupReader(
            requests,
            subscription,
            consumer_options,
            client=client,
            strategy=options.strategy,
            is_ordered=options.ordered,
            broker_group=broker_group,
        )
        self._seen = 0
        self._locking: frozenset[TopicQueue] = frozenset()
        self._locked_version = ""

    def news(self, now: float) -> GroupNews | None:
        """What the group has become since the last ``rebalance``, if it has.

        Nothing while the broker was not heard of for too long: it may be otherwise by now.

        Raises:
            LedgerError: the broker takes this member no more.
        """
        failure = self.heartbeats.failure
        if failure is not None:
            raise failure
        # Who reads queues is told by them.
        trouble = None if self.reader.queues else self.heartbeats.take_trouble()
        if trouble is not None:
            raise trouble
        return self._unseen(now)

    def has_news(self, now: float) -> bool:
        """Whether ``news`` has some, or raises."""
        heartbeats = self.heartbeats
        if heartbeats.failure is not None or self._unseen(now) is not None:
            return True
        return heartbeats.trouble is not None and not self.reader.queues

    def may_give(self, now: float) -> bool:
        """Whether the queues that it reads are surely its own."""
        return self._is_broadcasting or now < self.heartbeats.valid_until

    def rebalance(self, news: GroupNews) -> Course:
        """Come to the share that the group's state means; if it ends early, to be begun again."""
        reader = self.reader
        if self._is_broadcasting:
            moves = reader.broadcast_moves(news.view)
        elif is_before(news.version, self._locked_version):
            # From before its last locks: it says nothing true of them.
            moves = Rebalance(frozenset(), frozenset(), frozenset())
        else:
            moves = reader.moves(news.view)
        yield from self._lose(moves.lost)
        if moves.revoked:
            yield Notice("revoked", tuple(sorted(moves.revoked)))
            yield from self._give_away(moves.revoked)
        if moves.wanted:
            yield from self._take(moves.wanted)
        self._seen = news.number

    def commit(self, offsets: Offsets | None) -> Steps[None]:
        """Note what was consumed: ``offsets``, or all that was given so far."""
        noted = self.reader.uncommitted() if offsets is None else dict(offsets)
        yield from self._note(noted)
        if offsets is None:
            self.reader.note_all_committed()

    def give_back(
        self, messages: Sequence[ReceivedMessage], *, delay_level: int, times_max: int | None
    ) -> list[Request]:
        """The questions that give ``messages`` back, to be asked all at once.

        Raises:
            ConfigError: a number is out of range, or the member broadcasts.
        """
        if self._is_broadcasting:
            raise ConfigError("broadcasting consumers share nothing, and give nothing back")
        return give_back_requests(
            messages, self.group, delay_level=delay_level, times_max=times_max
        )

    def last_notice(self) -> Notice | None:
        """What the application is told before ``leave``, if there is something."""
        queues = self.reader.queues
        return Notice("revoked", tuple(sorted(queues))) if queues else None

    def leave(self) -> Course:
        """Give all queues away, and say goodbye."""
        queues = self.reader.queues
        locked = queues | self._locking
        if queues:
            self.reader.remove(queues)
            self.heartbeats.own(())
        self.heartbeats.fall_silent(True)
        if locked and not self._is_broadcasting:
            yield from unlock_steps(self.group, self.client, locked)
        yield from leave_steps(self.group, self.client, self._instance)

    def retire(self) -> Course:
        """Give all queues away as others are, with what was consumed of them noted; then leave."""
        notice = self.last_notice()
        if notice is not None:
            yield notice
            yield from self._give_away(self.reader.queues)
        yield from self.leave()

    def _unseen(self, now: float) -> GroupNews | None:
        news = self.heartbeats.news
        if news is None or news.number == self._seen or now >= self.heartbeats.valid_until:
            return None
        return news

    def _lose(self, queues: frozenset[TopicQueue]) -> Course:
        if queues:
            self.reader.remove(queues)
            self.heartbeats.own(self.reader.queues)
            yield Notice("lost", tuple(sorted(queues)))

    def _give_away(self, queues: frozenset[TopicQueue]) -> Course:
        lost: list[TopicQueue] = []
        if self.options.commit_on_revoke:
            lost = yield from self._note_what_can_be(self.reader.uncommitted(queues))
        self.reader.remove(queues)
        self.heartbeats.own(self.reader.queues)
        if not self._is_broadcasting:
            self._locked_version = yield from unlock_steps(self.group, self.client, queues)
        if lost:
            yield Notice("lost", tuple(lost))

    def _take(self, wanted: frozenset[TopicQueue]) -> Course:
        reader = self.reader
        if self._local is not None:
            stored = self._local.offsets()
            committed = {queue: stored[queue] for queue in wanted if queue in stored}
            begin = dict(committed)
            for queue in sorted(wanted - committed.keys()):
                found = yield from starting_offsets(
                    queue.topic, None, [queue.queue_id], self.options.start
                )
                begin[queue] = found[queue.queue_id]
        else:
            # Who is broken off here may have them all the same.
            self._locking = wanted
            owned, version = yield from lock_steps(
                self.group, self.client, wanted, is_ordered=self.options.ordered
            )
            self._locked_version = version
            yield from self._lose(frozenset((wanted & reader.queues) - owned))
            fresh = (owned & wanted) - reader.queues
            begin, committed = yield from begin_steps(
                self.group, self.client, fresh, self.options.start
            )
        reader.add(begin, committed)
        self._locking = frozenset()
        self.heartbeats.own(reader.queues)
        if begin:
            yield Notice("assigned", tuple(sorted(begin)))

    def _note_what_can_be(self, offsets: Offsets) -> Steps[list[TopicQueue]]:
        """Note what was consumed; the queues of which that is refused.

        The group has read on in those without this member: what it did was done by others, too.
        """
        lost = []
        try:
            yield from self._note(offsets)
        except MessageIllegalError:
            # Of a topic all is noted or nothing.
            for queue, offset in sorted(offsets.items()):
                try:
                    yield from self._note({queue: offset})
                except MessageIllegalError:
                    lost.append(queue)
        return lost

    def _note(self, offsets: Offsets) -> Steps[None]:
        if self._local is not None:
            self._local.commit(offsets)
        elif offsets:
            yield from commit_steps(self.group, self.client, offsets)
        self.reader.note_committed(offsets)


def _text_of(wanted: MessageFilter) -> str:
    """What the others are told of a member's filter: two that want the same say the same."""
    if wanted.sql:
        return f"{SQL_MARK}{wanted.sql}"
    return " || ".join(sorted(wanted.tags)) or wanted.expression


class LocalOffsets:
    """The offsets of a broadcasting consumer, in a file of its own machine, as RocketMQ keeps them.

        DIRECTORY/CLIENT/GROUP/offsets.json    {"offsetTable": {TOPIC: {QUEUE: OFFSET}}}

    RocketMQ's ``LocalFileOffsetStore`` has ``~/.rocketmq_offsets`` and keys that are no JSON.

    Invariant: the file is whole at any moment; what ``commit`` has returned for is durable.
    """

    def __init__(self, directory: Path, client: str, group: str) -> None:
        """Read what is there.

        Raises:
            ConfigError: a name cannot be that of a folder.
            CorruptLogError: the file is not one of ours.
            StorageError: the operating system refused.
        """
        for name in (client, group):
            if not is_file_name(name):
                raise ConfigError("name cannot be that of a folder", name=name)
        self.path = directory.expanduser() / client / group / _OFFSETS_FILE
        self._offsets = self._read()

    def offsets(self) -> dict[TopicQueue, int]:
        """Next offset to read, by queue; queues never committed are left out."""
        return dict(self._offsets)

    def commit(self, offsets: Mapping[TopicQueue, int]) -> None:
        """Have ``offsets`` in the file.

        Raises:
            StorageError: the operating system refused; the file is as it was.
        """
        merged = {**self._offsets, **offsets}
        if merged == self._offsets:
            return
        table: dict[str, dict[str, int]] = {}
        for queue, offset in sorted(merged.items()):
            table.setdefault(queue.topic, {})[str(queue.queue_id)] = offset
        try:
            _make_folders(self.path.parent)
        except OSError as error:
            raise StorageError(
                "offsets not written", errno=error.errno, file=str(self.path), reason=str(error)
            ) from error
        try:
            _replace(self.path, json.dumps({OFFSET_TABLE: table}, indent="\t").encode())
        except OSError as error:
            kind = DiskFullError if error.errno in NO_SPACE else StorageError
            raise kind(
                "file not replaced", errno=error.errno, file=str(self.path), reason=error.strerror
            ) from error
        self._offsets = merged

    def _read(self) -> dict[TopicQueue, int]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError(
                "offsets not read", errno=error.errno, file=str(self.path), reason=str(error)
            ) from error
        try:
            table = json.loads(content)[OFFSET_TABLE]
            return {
                TopicQueue(str(topic), int(queue)): int(offset)
                for topic, queues in table.items()
                for queue, offset in queues.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptLogError(
                "not a file of offsets: move it away to begin anew", file=str(self.path)
            ) from error


def _make_folders(folder: Path) -> None:
    """Make ``folder``, for its owner alone, and all above it that are missing, durable."""
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    for one in reversed(missing):
        try:
            one.mkdir(0o700 if one is folder else 0o777)
        except FileExistsError:
            # Another process was faster; of another account it is no folder of ours.
            if not one.is_dir():
                raise
            owner = one.stat().st_uid
            # Where no file has one all are root's.
            if owner and owner != os.geteuid():
                raise
        _sync(one.parent)


def _replace(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``, durable: a crash leaves the old content or the new one."""
    fresh = path.with_name(path.name + ".tmp")
    with open(fresh, "wb", opener=_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    _sync(path.parent)


def _private(name: str, flags: int) -> int:
    # A link in the place of a file that is about to be made is somebody else's: an error.
    return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _sync(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        # Folders cannot be opened here, nor made durable.
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
