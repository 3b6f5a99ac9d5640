# cython: language_level=3, cdivision=True
"""Kernel of the steady state: what a leader and its followers do with each message, in one piece.

Cython in pure-Python mode, as ``_stamp`` is. It has no state of the consensus: it reads and changes
the core's own (``raft.roles.node_state``), which the long way through the core works on, too, so
that there is nothing that could differ between the two. What it does with an event is what the core
does with it, rule for rule; the simulator compares both after each event
(``tests/simulator/machine/compared_line.py``). An event that is not of the steady state is left to
the core, with nothing changed.

Messages are those of ``raft.message_codec``: an append of one run without memberships, a heartbeat,
and a reply without a tail.
"""

from __future__ import annotations

import cython

from ledgermq.formats.steady_heads import HEARTBEAT, ONE_RUN, REPLY

_ONE_RUN_SIZE = cython.declare(cython.Py_ssize_t, 80)
_HEARTBEAT_SIZE = cython.declare(cython.Py_ssize_t, 64)
_REPLY_SIZE = cython.declare(cython.Py_ssize_t, 48)
assert (ONE_RUN.size, HEARTBEAT.size, REPLY.size) == (80, 64, 48)

_APPEND_KIND = cython.declare(cython.int, 5)
_REPLY_KIND = cython.declare(cython.int, 6)
_VERSION = cython.declare(cython.int, 1)
_ACCEPTED = cython.declare(cython.int, 1)
_FIT = cython.declare(cython.int, 2)
_TAIL = cython.declare(cython.int, 4)
_NONE = cython.declare(cython.longlong, -1)

# Literals above 2**63 would be Python numbers in the compiled kernel.
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_STEP = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_MIX_1 = cython.declare(cython.ulonglong, 0xBF58476D1CE4E5B9)
_MIX_2 = cython.declare(cython.ulonglong, 0x94D049BB133111EB)


@cython.cclass
class SteadyLine:
    """The straight line through one core.

    Each event gives true when it was taken, and false when it has to go the long way. What is to be
    done for one that was taken, in this order, stands here until the next one:

    Attributes:
        first, last: entries beside the append go to the writer; ``first`` is -1 without any.
        reply: bytes for the leader; None: nothing is said.
        wants: peers that lack entries: each with the first one, and the last one that there is.
        commit: the commit index, where it has changed; else -1.
        more: whether a peer may be sent more behind what ``replicated`` was told of.
    """

    state = cython.declare(object, visibility="public")
    _follower = cython.declare(object)
    _idle = cython.declare(object)
    _granted = cython.declare(object)
    _replicate = cython.declare(object)
    first = cython.declare(cython.longlong, visibility="public")
    last = cython.declare(cython.longlong, visibility="public")
    reply = cython.declare(object, visibility="public")
    wants = cython.declare(list, visibility="public")
    commit = cython.declare(cython.longlong, visibility="public")
    more = cython.declare(cython.bint, visibility="public")

    def __init__(self, state, follower, idle, granted, replicate):
        self.state = state
        self._follower = follower
        self._idle = idle
        self._granted = granted
        self._replicate = replicate
        self.first = self.last = self.commit = -1
        self.reply = None
        self.wants = []
        self.more = False

    def receive(self, now, source, data, has_entries):
        """A message of ``source`` has come at ``now``; entries may have come beside it."""
        size: cython.Py_ssize_t = len(data)
        run_term: cython.longlong = 0
        count: cython.longlong = 0
        kind: cython.int
        version: cython.int
        term: cython.longlong
        previous_term: cython.longlong
        previous: cython.longlong
        commit: cython.longlong
        round_: cython.longlong
        runs: cython.longlong
        indices: cython.longlong
        if size == _REPLY_SIZE:
            return not has_entries and _take_reply(self, now, source, data)
        if size == _ONE_RUN_SIZE:
            (
                kind, version, term, previous_term, previous, commit, round_, runs, run_term, count,
                indices,
            ) = ONE_RUN.unpack_from(data)  # fmt: skip
            if not has_entries or runs != 1 or count <= 0:
                return False
        elif size == _HEARTBEAT_SIZE:
            (
                kind, version, term, previous_term, previous, commit, round_, runs, indices,
            ) = HEARTBEAT.unpack_from(data)  # fmt: skip
            if has_entries or runs != 0:
                return False
        else:
            return False
        if kind != _APPEND_KIND or version != _VERSION or indices != 0:
            return False
        state = self.state
        log = state.log
        if (
            term != state.term
            or source != state.leader
            or not _follows(self, state)
            or not log.firsts
            or log.firsts[-1] > previous
            or previous > log.last_index
            or log.terms[-1] != previous_term
        ):
            return False
        # What it has already, and what is of another term, is looked at by the core.
        if count and (previous != log.last_index or run_term != previous_term):
            return False
        _clear(self)
        state.now = max(state.now, now)
        state.heard = state.now
        _arm_election(state)
        following = state.following
        if round_ > following.round:
            following.round = round_
            following.round_began = state.now
        following.leader_commit = max(following.leader_commit, commit)
        if count:
            self.first = previous + 1
            self.last = log.last_index = previous + count
        following.verified = max(following.verified, previous + count)
        _learn_commit(self, state, following)
        if not count or state.held >= following.verified:
            _acknowledge(self, state, following)
        return True

    def written(self, index):
        """The leader's own writer has stamped entries up to ``index``."""
        state = self.state
        lead = state.leadership
        log = state.log
        last: cython.longlong = index
        own: cython.longlong = log.last_index
        if lead is None or state.writer is not self._granted or not _leads(state, lead):
            return False
        if last > own:
            for progress in lead.progress.values():
                if progress.mode is self._replicate and not _is_near(lead, log, progress):
                    return False
        _clear(self)
        if last <= own:
            return True
        log.last_index = index
        for peer, progress in lead.progress.items():
            _pump(self, state, peer, progress)
        return True

    def held(self, index):
        """This node holds all entries up to ``index``, as the acknowledgement mode has it."""
        state = self.state
        lead = state.leadership
        last: cython.longlong = index
        own: cython.longlong = state.log.last_index
        if state.lost is not None:
            return False
        if lead is None:
            if state.leader is None or not _follows(self, state):
                return False
        elif (
            state.writer is not self._granted
            or last > own
            # What they hold is sent to witnesses now.
            or not _leads(state, lead)
        ):
            return False
        _clear(self)
        last = min(last, own)
        state.held = max(state.held, last)
        if lead is not None:
            if state.held > state.commit:
                _advance_commit(self, state, lead)
            return True
        following = state.following
        if min(state.held, following.verified) > following.acknowledged:
            _acknowledge(self, state, following)
        _learn_commit(self, state, following)
        return True

    def replicated(self, peer, first, last, size):
        """Entries from ``first`` to ``last`` were read, ``size`` bytes: the append to send.

        None: nothing has changed, and the core is to be told.
        """
        state = self.state
        lead = state.leadership
        log = state.log
        if lead is None or not _leads(state, lead):
            return None
        progress = lead.progress.get(peer)
        if progress is None or progress.next != first or last > log.last_index:
            return None
        if not _has_room(self, state, progress) or not _is_near(lead, log, progress):
            return None
        indexes = state.history.entry_indexes
        if indexes and indexes[-1] >= first:
            # There may be memberships among them.
            return None
        term = state.term
        head = ONE_RUN.pack(
            _APPEND_KIND, _VERSION, term, log.terms[-1], first - 1, state.commit, lead.round,
            1, term, last - first + 1, 0,
        )  # fmt: skip
        progress.next = last + 1
        progress.inflight.append((last, size))
        progress.inflight_bytes += size
        self.more = progress.next <= log.last_index and _has_room(self, state, progress)
        return head


@cython.cfunc
def _clear(line: SteadyLine) -> cython.void:
    line.first = line.last = line.commit = -1
    line.reply = None
    if line.wants:
        line.wants = []


@cython.cfunc
@cython.exceptval(-1)
def _follows(line: SteadyLine, state) -> cython.bint:
    """Whether this is a follower that takes entries, and whom nothing keeps from leading."""
    membership = state.history.current
    return (
        state.role is line._follower
        and state.writer is line._idle
        and state.lost is None
        and not state.sick
        and not state.outdated
        and state.terms_without_leader <= 1
        and state.node in membership.voters
        and state.node not in membership.witnesses
    )


@cython.cfunc
@cython.exceptval(-1)
def _leads(state, lead) -> cython.bint:
    """Whether this leader has an entry of its own term, and members that are all fed alike."""
    membership = state.history.current
    log = state.log
    return (
        lead.term_begin is not None
        and not membership.witnesses
        and state.node in membership.voters
        and len(lead.progress) == len(membership.voters) + len(membership.learners) - 1
        and state.policy.entries_have_terms
        and bool(log.terms)
        and log.terms[-1] == state.term
    )


@cython.cfunc
@cython.exceptval(-1)
def _is_near(lead, log, progress) -> cython.bint:
    """Whether all that a peer is sent next, and the entry before it, are of this term."""
    following: cython.longlong = progress.next
    begin: cython.longlong = lead.term_begin
    return following > begin and log.firsts[-1] < following


@cython.cfunc
@cython.exceptval(-1)
def _has_room(line: SteadyLine, state, progress) -> cython.bint:
    flow = state.policy.flow
    return (
        progress.mode is line._replicate
        and not flow.is_held
        and len(progress.inflight) < flow.inflight_count_max
        and progress.inflight_bytes < flow.inflight_bytes_max
    )


@cython.cfunc
@cython.exceptval(-1)
def _pump(line: SteadyLine, state, peer, progress) -> cython.int:
    """Want entries for a peer, when there are any and there is room."""
    last = state.log.last_index
    if progress.next <= last and _has_room(line, state, progress):
        line.wants.append((peer, progress.next, last))
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _take_reply(line: SteadyLine, now, source, data) -> cython.bint:
    """Learn where a peer is."""
    kind: cython.int
    version: cython.int
    flags: cython.int
    term: cython.longlong
    round_: cython.longlong
    held: cython.longlong
    kind, version, term, round_, _verified, held, flags = REPLY.unpack_from(data)
    if kind != _REPLY_KIND or version != _VERSION or flags & _TAIL or not flags & _ACCEPTED:
        return False
    state = line.state
    lead = state.leadership
    if lead is None or term != state.term or not _leads(state, lead):
        return False
    progress = lead.progress.get(source)
    if (
        progress is None
        or progress.mode is not line._replicate
        or lead.transfer is not None
        or lead.reads.waiting
        or not _is_near(lead, state.log, progress)
    ):
        return False
    _clear(line)
    state.now = max(state.now, now)
    progress.heard = state.now
    progress.fit = (flags & _FIT) != 0
    progress.round = max(progress.round, round_)
    progress.match = max(progress.match, held)
    if held >= progress.next:
        progress.next = held + 1
    inflight = progress.inflight
    while inflight and inflight[0][0] <= held:
        progress.inflight_bytes -= inflight.popleft()[1]
    if progress.match > state.commit:
        _advance_commit(line, state, lead)
    _pump(line, state, source, progress)
    return True


@cython.cfunc
@cython.exceptval(-1)
def _advance_commit(line: SteadyLine, state, lead) -> cython.int:
    """Commit what a majority holds, if it is of our own term."""
    voters = state.history.current.voters
    own = state.node
    matched = [state.held if voter == own else lead.progress[voter].match for voter in voters]
    matched.sort(reverse=True)
    index = min(matched[len(matched) // 2], state.held)
    if index > state.commit and index >= lead.term_begin:
        assert index <= state.log.last_index, (index, state.log.last_index)
        state.commit = line.commit = index
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _learn_commit(line: SteadyLine, state, following) -> cython.int:
    """Follow the leader's commit index, as far as our log is surely its log and is held."""
    index = min(following.leader_commit, following.verified, state.held)
    if index > state.commit:
        assert index <= state.log.last_index, (index, state.log.last_index)
        state.commit = line.commit = index
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _acknowledge(line: SteadyLine, state, following) -> cython.int:
    """Tell the leader what is held of what is surely its own."""
    held = following.acknowledged = min(state.held, following.verified)
    line.reply = REPLY.pack(
        _REPLY_KIND,
        _VERSION,
        state.term,
        following.round,
        following.verified,
        held,
        _ACCEPTED if state.full else _ACCEPTED | _FIT,
    )
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _arm_election(state) -> cython.int:
    """Wait anew before campaigning: what ``NodeState.arm_election`` does where one leads."""
    timing = state.policy.timing
    chance = state.chance
    low: cython.longlong = timing.election_min
    span: cython.ulonglong = timing.election_max - timing.election_min + 1
    word: cython.ulonglong = chance.word
    word = (word + _STEP) & _WORD
    chance.word = word
    word = ((word ^ (word >> 30)) * _MIX_1) & _WORD
    word = ((word ^ (word >> 27)) * _MIX_2) & _WORD
    word ^= word >> 31
    state.election_deadline = state.now + low + word % span
    return 0
