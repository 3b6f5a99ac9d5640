"""The raft process of a witness without bodies: votes and one known entry, and no log beside it.

It alone writes ``ROOT/ledgermq/witness``. There is no writer, no dispatcher and no broker on such a
node. Beside what a leader wants known come the addresses of the group's members, so that each of
them can ask for a vote, and the feature level that is in force, so that nobody does who is too old.
Both are kept in ``ROOT/ledgermq/told-group``: who leads when this process is started again may be
one whom ``node.peers`` does not name.

File of a witness without bodies: term, vote and last known entry, in two slots.

Layout of ``ROOT/ledgermq/witness``, little-endian, two slots of 512 bytes (a sector each), written
in turn, so that a torn write leaves the other one:

    offset  size  field
    0       4     magic ``LMQW``
    4       4     version, 1
    8       8     sequence: the slot with the larger one counts
    16      8     term
    24      32    node voted for, UTF-8, zero-padded; empty: none
    56      8     term of the last known entry
    64      8     index of that entry, signed; -1: none is known
    72      4     CRC-32 of the bytes before
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Final

from ledgermq.formats.digest import CRC, without_crc
from ledgermq.ipc.counters import RaftCounter
from ledgermq.ipc.cursor_page import Grant, Role
from ledgermq.ipc.cursor_page import PublishedRole as PageRole
from ledgermq.ipc.loop import LOOK_AGAIN_MS, Pollable, StopFlag
from ledgermq.ipc.page_slots import Proof
from ledgermq.members.roster import ToldGroup, decode_group, keep_group, read_group
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, CorruptLogError, NotLeaderError, ProtocolError
from ledgermq.model.events import Event
from ledgermq.model.features import LEVEL, LEVEL_OF_BODILESS
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.process.control import PolledControl
from ledgermq.process.environment import WorkerEnds
from ledgermq.process.node import Surroundings
from ledgermq.process.store_kind import check_kind
from ledgermq.process.worker_main import run_worker
from ledgermq.raft.membership import Membership
from ledgermq.raft.message_codec import decode_message, encode_message
from ledgermq.raft.messages import Append, Attest, EntryId
from ledgermq.raft.roles.witness import KEEPS_NOTHING, WitnessCore, WitnessEffects, WitnessState
from ledgermq.raft.status import witness_status
from ledgermq.raft.term_slots import (
    FILE_SIZE,
    SLOT_SIZE,
    VOTE_SIZE_MAX,
    Stored,
    hard_state_of,
    newest_slot,
    slot_of,
)
from ledgermq.raft.timing import TICK_NS
from ledgermq.raft_node.peers.peer_group import PeerGroup
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.raft_node.raft_control import AUDITED_VERBS, status_document
from ledgermq.raft_node.raft_core import MESSAGES_PER_TURN_MAX, timing_of
from ledgermq.raft_node.term_file import SlotsFile, when_there_is_space
from ledgermq.store.files.store_paths import StorePaths

_SLOT = Struct("<4sIQQ32sQq")
assert _SLOT.size + CRC.size <= SLOT_SIZE

_MAGIC = b"LMQW"
_VERSION = 1


StoredWitness = Stored[WitnessState]


class WitnessFile:
    """Reads and writes what a witness keeps; owned by its raft process.

    Attributes:
        state: what is durable.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``, made if it is not there; what is found is durable then.

        Raises:
            StorageError: the operating system refused.
            CorruptLogError: neither slot is whole: a vote by an older state could elect a leader
                that lacks what was acknowledged.
        """
        self._slots = SlotsFile(path, FILE_SIZE, of="what this witness knows")
        try:
            stored = decode_slots(self._slots.content)
        except CorruptLogError as error:
            self._slots.close()
            raise CorruptLogError(error.message, file=str(path)) from error
        self._sequence, self.state = stored or StoredWitness(0, KEEPS_NOTHING)
        if stored is not None:
            # Who wrote it may have ended before it was synced.
            self._write(stored)

    def persist(self, state: WitnessState) -> None:
        """Durable when this returns.

        Raises:
            StorageError: it is not, and nothing that depends on it may leave the node.
        """
        self._write(StoredWitness(self._sequence + 1, state))
        self._sequence += 1
        self.state = state

    def close(self) -> None:
        """Close the file."""
        self._slots.close()

    def _write(self, stored: StoredWitness) -> None:
        self._slots.write(*encode_slot(*stored))


def encode_slot(sequence: int, state: WitnessState) -> tuple[int, bytes]:
    """Offset and bytes of the slot that ``state`` goes to as number ``sequence``."""
    vote = (state.hard_state.vote or "").encode()
    assert len(vote) <= VOTE_SIZE_MAX, state
    last = state.last
    body = _SLOT.pack(
        _MAGIC, _VERSION, sequence, state.hard_state.term, vote, last.term, last.index
    )
    return slot_of(sequence, body)


def decode_slots(content: bytes) -> StoredWitness | None:
    """The newest whole slot; None for a file that was never written.

    Raises:
        CorruptLogError: neither slot is whole.
    """
    return newest_slot(content, _decode_slot, said="what this witness knows")


def _decode_slot(slot: bytes) -> StoredWitness | None:
    body = without_crc(slot, _SLOT.size)
    if body is None:
        return None
    magic, version, sequence, term, vote, last_term, last = _SLOT.unpack(body)
    if (magic, version) != (_MAGIC, _VERSION):
        return None
    state = WitnessState(hard_state_of(term, vote), EntryId(Term(last_term), Index(last)))
    return StoredWitness(sequence, state)


logger = logging.getLogger(__name__)

_OF_LEADERS = frozenset({"transfer", "resign", "hear", "add", "remove"})


class WitnessControl(PolledControl):
    """Owned by the raft process of a witness."""

    def __init__(self, path: Path, mode: int, core: WitnessCore, peers: Peers) -> None:
        """Listen at ``path``.

        Raises:
            ConfigError: the path is too long for a socket.
            StorageError: the socket cannot be made there.
        """
        self._core = core
        self._peers = peers
        super().__init__(path, mode, self._answer, audited=AUDITED_VERBS)

    def _answer(self, verb: str, request: Mapping[str, object]) -> Mapping[str, object]:
        if verb == "status":
            return self._status()
        if verb == "forget":
            return {"forgotten": self._peers.forget(self._member(request.get("node")))}
        if verb == "why-no-leader":
            reasons = [f"{peer}: {reason}" for peer, reason in self._peers.refusals.items()]
            known = [] if self._core.leader else ["this node is a witness, and never leads"]
            return {"leader": self._core.leader, "reasons": known + reasons}
        if verb in _OF_LEADERS:
            raise NotLeaderError(
                "this node is a witness, and never leads", leader=self._core.leader
            )
        raise ProtocolError("unknown verb", verb=verb)

    def _status(self) -> Mapping[str, object]:
        own = frozenset({self._core.node})
        # Of the others it knows who they are, and not what.
        members = Membership(own.union(self._peers.voters), witnesses=own, bodiless=own)
        levels = {**self._peers.levels, self._core.node: LEVEL}
        return {
            **status_document(witness_status(self._core, members), self._peers.refusals),
            "role": "witness",
            "levels": {node: levels.get(node) for node in sorted(members.members)},
        }

    def _member(self, name: object) -> NodeId:
        members = sorted(self._peers.voters)
        if not isinstance(name, str) or name not in members:
            raise ConfigError("no such member", node=name, members=members)
        return NodeId(name)


WATCH_EVERY_NS = 100_000_000


class WitnessWorker:
    """Carries messages of the peers into the core, and what it has to say out."""

    stop = StopFlag()  # The process's, where there is one.
    # Any: others wait for what it does.
    hears_bells: Final = None
    zmq_uses: Final = None

    def __init__(self, environment: WorkerEnds, file: WitnessFile, peers: Peers) -> None:
        """Go on from ``file``, and with the members that were told last.

        Raises:
            CorruptLogError: what was told of the group is damaged on the disk.
            StorageError: it cannot be read, or the control socket cannot be made.
        """
        settings = environment.settings
        self._page = environment.page
        self._counters = environment.page.counters(Role.RAFT)
        self._inbox = environment.inbox
        self._file = file
        self._peers = peers
        self._watch_due_ns = 0
        self._told_group = b""
        self._noted = ""
        self.core = WitnessCore(
            NodeId(settings.node.self_id),
            file.state,
            timing=timing_of(settings),
            now=environment.clock.monotonic_ns() // TICK_NS,
        )
        self._control = WitnessControl(
            environment.paths.raft_control,
            settings.listen.socket_mode,
            self.core,
            peers,
        )
        # Where it belongs to a group this is in force, whatever it was told before a restart.
        self._level = LEVEL_OF_BODILESS
        self._group_path = StorePaths.of(settings).told_group
        group = read_group(self._group_path)
        if group is None:
            peers.need_level(self._level)
        else:
            self._know_group(group)
        self._publish()

    @property
    def kept(self) -> WitnessState:
        """What is durable."""
        return self._file.state

    def sources(self) -> list[Pollable]:
        """The inbox, the operator and the peers."""
        return [*self._inbox.sources, self._control.source, *self._peers.sources]

    def sleep_ms(self, now_ns: int) -> int:
        """Milliseconds until the peers are watched again: nothing else is due by itself."""
        return min(LOOK_AGAIN_MS, max(0, (self._watch_due_ns - now_ns) // 1_000_000))

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """All that waits first, up to a bound; then one sync for all of it, and the answers."""
        self._inbox.drain(ready)
        for _ in range(MESSAGES_PER_TURN_MAX):
            received = self._peers.receive()
            if received is None:
                break
            self._take(now_ns // TICK_NS, received.node, received.parts)
        effects = self.core.close_turn()
        if effects is not None:
            self._carry_out(effects)
        if now_ns >= self._watch_due_ns:
            self._watch_due_ns = now_ns + WATCH_EVERY_NS
            self._peers.watch()
            if self.core.leader is not None:
                self._page.publish_proof(Proof(self.core.heard * TICK_NS, False, False))
        if self._control.source in ready:
            self._control.serve(now_ns)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: none of those that may change counts here."""

    def finish(self) -> None:
        """Nothing: what is under way goes on elsewhere, or after a restart."""

    def close(self) -> None:
        """Close files and sockets."""
        self._control.close()
        self._peers.close()
        self._file.close()

    def _take(self, now: int, source: NodeId, parts: list[memoryview]) -> None:
        self._counters[RaftCounter.MESSAGES_RECEIVED] += 1
        group, told = None, b""
        try:
            message = decode_message(parts[0])
            if isinstance(message, Attest) and len(parts) == 2:
                told = bytes(parts[1])
                # The same bytes again and again: mostly nothing is to be done.
                group = None if told == self._told_group else decode_group(told)
            elif len(parts) != 1 and not isinstance(message, Append):
                raise ProtocolError("a message to a witness with more parts", parts=len(parts))
        except ProtocolError as error:
            self._counters[RaftCounter.MESSAGES_REFUSED] += 1
            logger.warning("message of a peer refused: peer=%s error=%s", source, error)
            return
        self.core.receive(now, source, message)
        # A leader whose time is over may not know of members that came since.
        if group is not None and (self.core.leader, self.core.term) == (source, message.term):
            self._know_group(group)
            keep_group(self._group_path, ToldGroup(self._level, group.addresses))
            self._told_group = told

    def _know_group(self, group: ToldGroup) -> None:
        self._peers.set_members(group.addresses)
        # A leader that was just started does not know of any level yet.
        self._level = max(self._level, group.level)
        self._peers.need_level(self._level)

    def _carry_out(self, effects: WitnessEffects) -> None:
        if effects.persist is not None:
            when_there_is_space(
                partial(self._file.persist, effects.persist),
                lambda: self._page.give_sign(Role.RAFT, time.monotonic_ns()),
                self.stop,
            )
            self._counters[RaftCounter.COMMITS] += 1
        for peer, message in effects.send:
            sent = self._peers.send(peer, (encode_message(message),))
            self._counters[RaftCounter.MESSAGES_SENT if sent else RaftCounter.MESSAGES_UNSENT] += 1
        if effects.leader is not None:
            self._noted = ""
            logger.info(
                "term=%d role=witness leader=%s",
                effects.leader.term,
                effects.leader.leader or "none",
                extra={"event": Event.ROLE_CHANGED},
            )
            self._publish()
        for note in effects.notes:
            if note != self._noted:
                logger.warning("%s", note)
            self._noted = note

    def _publish(self) -> None:
        leader = self.core.leader or NodeId("")
        self._page.publish_grant(Grant(self.core.term, False, PageRole.FOLLOWER, leader))


def run(settings: Settings, stop: StopFlag) -> int:
    """Run the raft process of a witness until it is told to stop; the exit status."""

    paths = StorePaths.of(settings)
    check_kind(paths, settings)

    def make(environment: Surroundings) -> WitnessWorker:
        file = WitnessFile(paths.witness)
        worker = WitnessWorker(environment, file, PeerGroup.of(settings, environment.context))
        worker.stop = stop
        return worker

    return run_worker(Role.RAFT, settings, stop, make)
