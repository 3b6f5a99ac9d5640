"""The follower's side of replication (Raft paper, section 5.3)."""

from __future__ import annotations

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.effects import AppendEntries
from ledgermq.raft.entry_terms import UNKNOWN_TERM
from ledgermq.raft.messages import (
    Append,
    AppendReply,
    Attest,
    EntryId,
    LogTail,
    RaftRole,
    TermRun,
)
from ledgermq.raft.roles.node_state import NodeState, WriterState
from ledgermq.raft.timing import TURN_OF_GONE


def on_append(state: NodeState, source: NodeId, message: Append) -> None:
    """Take the leader's entries, or say where the log parts from its.

    Raises:
        CorruptLogError: an entry that was committed here would be overwritten.
    """
    # The answer has our term: by it a leader learns that its time is over (section 5.1).
    if message.term < state.term:
        state.send(source, _reply(state, accepted=False))
        return
    if not _accepts_leader(state, source, message):
        return
    state.heard = state.now
    state.arm_election()
    following = state.following
    # Counted before anything is taken or refused: a round asks who leads, not whose log is right.
    if message.round > following.round:
        following.round, following.round_began = message.round, state.now
    following.leader_commit = max(following.leader_commit, message.commit)
    if state.writer is not WriterState.IDLE:
        # The end of the log is not known now. An answer, for the leader counts the living.
        state.send(source, _reply(state, accepted=False))
        return
    if not _has_previous(state, message.previous):
        state.send(source, _reply(state, accepted=False, tail=state.log.tail(state.commit)))
        return
    _take_entries(state, source, message)


def on_attest(state: NodeState, source: NodeId, message: Attest) -> None:
    """The leader takes this node for a witness without bodies: it must not count as one."""
    if message.term < state.term:
        state.send(source, _reply(state, accepted=False))
    else:
        state.note(f"{source} takes this node for a witness without bodies, and it is none")


def _take_entries(state: NodeState, source: NodeId, message: Append) -> None:
    end = message.previous.index
    for run in message.runs:
        end = Index(end + run.count)
    new = state.log.first_difference(message.previous.index, message.runs)
    if new is not None and new <= state.log.last_index:
        _cut(state, Index(new - 1))
        return
    if new is not None:
        skipped = new - message.previous.index - 1
        for run in message.runs:
            rest = run.count - skipped
            if rest > 0:
                state.log.append([TermRun(run.term, rest)])
            skipped = max(0, -rest)
        state.out.append = AppendEntries(new, end)
    following = state.following
    following.verified = max(following.verified, min(end, state.log.last_index))
    learn_commit(state)
    # Entries are answered when they are held (``entries_held``). Heartbeats, and entries that come
    # twice, never reach that: nothing new would be held.
    if not message.runs or state.held >= following.verified:
        acknowledge(state)


def log_truncated(state: NodeState, last: EntryId) -> None:
    """The writer has cut the log; tell the leader to send the rest.

    It may lack entries before the cut, too: what it was handed and had not taken went with the
    ring. Nobody was told that they are held.
    """
    assert state.writer is WriterState.TRUNCATING and last.index <= state.log.last_index, last
    state.log_recovered(last, None)
    invite_leader(state)


def invite_leader(state: NodeState) -> None:
    """Say where our log ends, without being asked: the leader was told to wait."""
    if state.leader is not None and state.role is RaftRole.FOLLOWER:
        tail = state.log.tail(state.commit)
        state.send(state.leader, _reply(state, accepted=False, tail=tail))


def acknowledge(state: NodeState) -> None:
    """Tell the leader what is held of what is surely its own."""
    if state.leader is None or state.role is not RaftRole.FOLLOWER:
        return
    state.following.acknowledged = min(state.held, state.following.verified)
    state.send(state.leader, _reply(state, accepted=True))


def entries_held(state: NodeState) -> None:
    """More of our log counts for an acknowledgement now."""
    following = state.following
    if min(state.held, following.verified) > following.acknowledged:
        acknowledge(state)
    learn_commit(state)


def learn_commit(state: NodeState) -> None:
    """Follow the leader's commit index, as far as our log is surely its log and is held.

    Clipping to the end of our log alone would commit what another leader had left there.
    """
    following = state.following
    index = min(following.leader_commit, following.verified, state.held)
    if index > state.commit:
        state.set_commit(index)


def leader_gone(state: NodeState, peer: NodeId) -> bool:
    """The connection to ``peer`` has ended: campaign as soon as its lease is over, if it leads and
    says nothing more. Whether this node may.

    An ended connection is no proof. So nothing that others go by is cut short by it: a leader that
    lives has its lease until then, and is heard of within it.
    """
    if peer != state.leader or state.role is not RaftRole.FOLLOWER:
        return False
    if not state.is_leader_gone:
        state.gone_since, state.waits_until = state.heard, state.election_deadline
    electable = sorted(state.membership.electable - {peer})
    if state.node not in electable:
        return False
    wait = TURN_OF_GONE * electable.index(state.node) + TURN_OF_GONE // 2
    due = state.following.round_began + state.policy.timing.lease_honoured
    state.election_deadline = min(state.election_deadline, max(state.now, due) + wait)
    return True


def run_told(
    state: NodeState,
    last: EntryId,
    *,
    held: Index,
    commit: Index,
    heard: int,
    round_: int,
    round_began: int,
) -> None:
    """Know what the writer has done by itself; see ``RaftCore.run_told``."""
    following, log = state.following, state.log
    count = last.index - log.last_index
    assert count >= 0 and state.role is RaftRole.FOLLOWER, (last, log.last, state.role)
    if count:
        assert last.term == state.term, (last, state.term)
        log.append([TermRun(last.term, count)])
        following.verified = last.index
    state.held = max(state.held, min(held, last.index))
    state.commit = max(state.commit, commit)
    following.leader_commit = max(following.leader_commit, commit)
    if round_ > following.round:
        following.round, following.round_began = round_, round_began
    if heard > state.heard:
        state.heard = heard
        # From then on, and not from now: who waits for a leader that has died waits long enough.
        now, state.now = max(state.now, heard), heard
        state.arm_election()
        state.now = now


def lacks_before(state: NodeState, source: NodeId, term: Term, first: Index) -> bool:
    """Whether this node follows ``source`` in ``term``, whose log begins with entry ``first``, and
    lacks what was before it.

    ``RaftCore.lacks_before`` says what follows from it.
    """
    return (
        state.role is RaftRole.FOLLOWER
        and (state.leader, state.term) == (source, term)
        and state.writer is WriterState.IDLE
        and max(state.following.verified, state.commit) < first - 1
    )


def _accepts_leader(state: NodeState, source: NodeId, message: Append) -> bool:
    """Follow ``source``, unless this term has another leader, which only a bug can bring."""
    if message.term > state.term:
        state.follow(message.term, source)
        return True
    if state.role is RaftRole.LEADER or state.leader not in (None, source):
        state.note(f"two leaders in term {state.term}: {state.leader} and {source}")
        return False
    if state.role is not RaftRole.FOLLOWER or state.leader is None:
        state.follow(message.term, source)
    return True


def _has_previous(state: NodeState, previous: EntryId) -> bool:
    term = state.log.term_of(previous.index)
    if term == previous.term:
        return True
    if previous.index > state.commit:
        return False
    if previous.term == UNKNOWN_TERM:
        # The leader's log begins behind it. What is committed here, it had, too.
        return True
    if term is not None:
        raise CorruptLogError("a committed entry is another one's", ours=term, leader=previous)
    # The log begins behind it: it was committed, and deleted since.
    return previous.index <= state.log.before.index


def _cut(state: NodeState, after: Index) -> None:
    """Order the writer to cut what no leader of this term has; the entries come again."""
    if after < state.commit:
        raise CorruptLogError("a committed entry would be cut", after=after, commit=state.commit)
    assert after >= state.following.verified, (after, state.following)
    state.log.truncate(after)
    state.history.roll_back(after)
    state.held = min(state.held, after)
    state.writer = WriterState.TRUNCATING
    state.out.truncate = state.log.last
    # Up to there our entries were just found to be the leader's.
    state.following.verified = after


def _reply(state: NodeState, *, accepted: bool, tail: LogTail | None = None) -> AppendReply:
    following = state.following
    return AppendReply(
        term=state.term,
        round=following.round,
        accepted=accepted,
        verified=following.verified,
        # What we hold beyond it may be another leader's: counted, it would commit what nobody has.
        held=min(state.held, following.verified),
        tail=tail,
        fit=not (state.barriers() or state.full),
    )
