"""The leader's side of replication (Raft paper, sections 5.3 and 5.4.2)."""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.model.ids import NO_INDEX, Index, NodeId
from ledgermq.raft.effects import ReplicateTo, ShipFiles
from ledgermq.raft.messages import Append, AppendReply, EntryId, RaftRole, TermRun
from ledgermq.raft.quorum import committed_index, has_majority, majority
from ledgermq.raft.roles import attesting, transfer
from ledgermq.raft.roles.leadership import Leadership, TransferStage, WaitingRead
from ledgermq.raft.roles.node_state import NodeState, WriterState
from ledgermq.raft.roles.progress import Progress, ProgressMode
from ledgermq.raft.timing import NEVER


def begin(state: NodeState) -> None:
    """Won the election: ask every peer where its log parts from ours, and have the writer stamp."""
    timing = state.policy.timing
    following = Index(state.log.last.index + 1)
    is_witness = state.node in state.membership.witnesses
    state.role = RaftRole.LEADER
    state.know_leader(state.node)
    state.poll = None
    # Peers count as heard now: otherwise the first ``tick`` would find no majority, and step down.
    state.leadership = Leadership(
        began=state.now,
        progress={peer: Progress(following, state.now) for peer in sorted(_peers(state))},
        # A witness leads until another one has what it has.
        next_preferred=state.now + (0 if is_witness else timing.preferred_wait),
        preferred_wait=timing.preferred_wait,
    )
    assert state.writer is WriterState.IDLE, state.writer
    attesting.members_changed(state, state.leadership)
    transfer.grant(state)
    heartbeat(state, state.leadership)


def tick(state: NodeState, lead: Leadership) -> None:
    """Step down without a majority; heartbeats; hand-overs."""
    if not has_majority(state.membership.voters, heard_since(state, lead, _quorum_horizon(state))):
        state.note(f"steps down: no majority was heard of since {_quorum_horizon(state)}")
        state.follow(state.term, None)
        return
    # Before the heartbeat, which sets ``next_heartbeat`` anew: TimeoutNow is repeated at that tick.
    transfer.tick(state, lead)
    if state.leadership is not None and state.now >= lead.next_heartbeat:
        heartbeat(state, lead)


def heartbeat(state: NodeState, lead: Leadership) -> None:
    """A round: every peer hears of us, of the commit index, and answers with where it is."""
    lead.round += 1
    lead.begun.append((lead.round, state.now))
    lead.next_heartbeat = state.now + state.policy.timing.heartbeat
    if lead.attesting is not None:
        attesting.look(state, lead, lead.attesting)
    for peer, progress in lead.progress.items():
        _probe(state, lead, peer, progress)


def on_append_reply(state: NodeState, source: NodeId, reply: AppendReply) -> None:
    """Learn where a peer is."""
    if reply.term > state.term:
        state.follow(reply.term, None)
        return
    lead = state.leadership
    if lead is None or reply.term < state.term:
        return
    progress = lead.progress.get(source)
    if progress is None:
        return
    progress.heard = state.now
    progress.fit = reply.fit
    # Of a refusal, too: whoever answers in our term confirms that we lead, wherever its log parts.
    progress.round = max(progress.round, reply.round)
    if reply.accepted:
        progress.held(reply.held)
        if progress.mode is not ProgressMode.REPLICATE:
            # Behind what it has, not behind what it holds: what waits for its disk need not travel
            # again.
            following = Index(max(reply.verified, progress.match) + 1)
            progress.turn(ProgressMode.REPLICATE, following)
    elif reply.round >= progress.rewound:
        _rewind(state, lead, source, reply)
    if progress.match > state.commit:
        advance_commit(state)
    if state.leadership is not None:
        if not lead.reads.is_idle():
            confirm_reads(state, lead)
        if source in lead.progress:
            pump(state, lead, source)
        if lead.attesting is not None:
            _pump_witnesses(state, lead)
        if lead.transfer is not None:
            transfer.step(state, lead)


def entries_written(state: NodeState, last: EntryId) -> None:
    """Our own writer has stamped entries up to ``last``."""
    lead = state.leadership
    count = last.index - state.log.last_index
    if lead is None or count <= 0 or state.writer is not WriterState.GRANTED:
        return
    term = state.term if state.policy.entries_have_terms else state.log.last.term
    state.log.append([TermRun(term, count)])
    for peer in lead.progress:
        pump(state, lead, peer)


def log_settled(state: NodeState, lead: Leadership) -> None:
    """The writer has no grant, and the end of the log is known: hand over, or lead on."""
    for peer in lead.progress:
        pump(state, lead, peer)
    if lead.transfer is None:
        transfer.grant(state)
    else:
        transfer.step(state, lead)


def pump(state: NodeState, lead: Leadership, peer: NodeId) -> None:
    """Ask the process for entries to send, when there are any and there is room."""
    progress = lead.progress[peer]
    last = state.log.last_index
    if progress.next > last:
        return
    if lead.attesting is not None and peer in state.membership.bodiless:
        attesting.attest(state, lead, peer, progress)
        return
    if peer in state.membership.witnesses:
        # If a witness alone were left with an entry, it would have to lead before others can.
        last = min(last, state.held)
    if progress.next > last or not progress.has_room(state.policy.flow):
        return
    if lead.term_begin is not None and progress.next <= lead.term_begin:
        # By itself the entry that opens the term needs little space: a group whose disks are full
        # can commit with it what its last leader has acknowledged.
        last = min(last, lead.term_begin)
    if progress.next < state.log.first:
        _ship_files(state, peer, progress)
        return
    # ``next`` moves only when the process has read (``replicated``): a second request of this event
    # would have the same entries read and sent twice.
    if any(request.peer == peer for request in state.out.replicate):
        return
    previous = state.log.entry(Index(progress.next - 1))
    state.out.replicate.append(ReplicateTo(peer, state.term, previous, progress.next, last))


def replicated(state: NodeState, request: ReplicateTo, last: Index, size: int) -> None:
    """The process has read entries up to ``last`` for ``request``: send them."""
    lead = state.leadership
    if lead is None or request.term != state.term:
        return
    progress = lead.progress.get(request.peer)
    if progress is None or progress.next != request.next or request.next < state.log.first:
        return
    if not progress.has_room(state.policy.flow):
        return
    assert request.next <= last <= request.until, (request, last)
    runs = state.log.runs(request.next, last)
    append = Append(
        state.term,
        request.previous,
        runs,
        state.commit,
        lead.round,
        state.history.indexes(request.next, last),
    )
    state.send(request.peer, append)
    progress.sent(last, size)
    pump(state, lead, request.peer)


def entries_held(state: NodeState, lead: Leadership) -> None:
    """More of our log counts for an acknowledgement now."""
    if state.membership.witnesses:
        _pump_witnesses(state, lead)
    if state.held > state.commit:
        advance_commit(state)


def advance_commit(state: NodeState) -> None:
    """Commit what a majority holds, if it is of our own term (section 5.4.2)."""
    lead = state.leadership
    if lead is None or lead.term_begin is None:
        return
    index = committed_index(state.membership.voters, matches(state, lead))
    # Ours too: what is committed is in no danger on any node that says so.
    index = min(index, state.held)
    if lead.attesting is not None:
        # A witness may have been told of it while we leant on it, and we do no more.
        index = min(index, attesting.attestable(state, lead))
    if index <= state.commit or not _is_own_term(state, lead, index):
        return
    state.set_commit(index)
    gone = lead.progress.keys() - _peers(state)
    if gone and state.commit >= state.history.index:
        # So that they know, and do not ask for votes that they do not get.
        heartbeat(state, lead)
        for peer in gone:
            del lead.progress[peer]
    if state.commit >= state.history.index and state.node not in state.membership.voters:
        state.note("steps down: the group goes on without this node")
        heartbeat(state, lead)
        state.follow(state.term, None)


def matches(state: NodeState, lead: Leadership) -> Mapping[NodeId, Index]:
    """What each member holds."""
    held = {peer: progress.match for peer, progress in lead.progress.items()}
    held[state.node] = state.held
    return held


def heard_since(state: NodeState, lead: Leadership, tick_: int) -> set[NodeId]:
    """Members that gave a sign of life at ``tick_`` or later."""
    heard = {peer for peer, progress in lead.progress.items() if progress.heard >= tick_}
    return heard | {state.node}


def read_for(state: NodeState, lead: Leadership, reader: NodeId, read: int) -> None:
    """Answer ``reader`` when a round that begins from now on is confirmed."""
    idle = lead.reads.is_idle()
    lead.reads.add(WaitingRead(read, reader, state.commit, lead.round + 1))
    # With a read under way the next round waits for its answers (``confirm_reads``) and serves all
    # that came meanwhile. The round under way began before this read, and proves nothing for it.
    if idle:
        heartbeat(state, lead)
        # A lone voter has nobody whose answer would bring this about.
        confirm_reads(state, lead)


def confirmed_round(state: NodeState, lead: Leadership) -> int:
    """The last round that a majority has answered, or a later one; 0 before any."""
    rounds = {peer: progress.round for peer, progress in lead.progress.items()}
    rounds[state.node] = lead.round
    voters = state.membership.voters
    answered = sorted((rounds.get(voter, 0) for voter in voters), reverse=True)
    return answered[majority(len(voters)) - 1]


def alone_until(state: NodeState, lead: Leadership) -> int | None:
    """Tick before which no other member is elected; None while another one may be.

    Whoever has heard of a round votes for nobody for a while (``Timing.lease_honoured``): so none
    is elected for as long after the *beginning* of a round that a majority has answered, but by a
    hand-over, which is begun here (thesis, section 6.4.1). The lease is a little shorter, for
    clocks that run at other rates. A member that is begun anew does not know what it has heard.
    """
    handing_over = lead.transfer
    if handing_over is not None and handing_over.stage is not TransferStage.CATCHING_UP:
        return None
    if state.writer is not WriterState.GRANTED:
        return None
    members = state.history.current
    by_run = lead.sure_by_run or None
    if lead.sure_round == lead.round and lead.sure_of is members:
        # No answer can make it later before the next round begins.
        return max(lead.sure_until, lead.sure_by_run)
    if members.voters == {state.node}:
        return NEVER
    confirmed = confirmed_round(state, lead)
    began = next((tick_ for round_, tick_ in reversed(lead.begun) if round_ <= confirmed), None)
    if began is None:
        return by_run
    until = began + state.policy.timing.lease
    if confirmed >= lead.round:
        lead.sure_round, lead.sure_of, lead.sure_until = lead.round, members, until
    return max(until, lead.sure_by_run)


def confirm_reads(state: NodeState, lead: Leadership) -> None:
    """Answer the reads whose round a majority has answered; begin the round that others need."""
    for read in lead.reads.confirmed(confirmed_round(state, lead)):
        state.answer_read(read.reader, read.read, read.index)
    if lead.reads.needs_round(lead.round):
        heartbeat(state, lead)


def has_committed(state: NodeState, lead: Leadership) -> bool:
    """Whether the commit index is known to be the group's: something of our term is committed."""
    if not state.policy.entries_have_terms:
        return lead.term_begin is not None
    return lead.term_begin is not None and state.commit >= lead.term_begin


def membership_changed(state: NodeState, lead: Leadership) -> None:
    """Begin to feed new members; those that leave are fed until that is committed."""
    attesting.members_changed(state, lead)
    for peer in sorted(_peers(state) - lead.progress.keys()):
        lead.progress[peer] = Progress(Index(state.log.last.index + 1), state.now)
        _probe(state, lead, peer, lead.progress[peer])
    advance_commit(state)


def _pump_witnesses(state: NodeState, lead: Leadership) -> None:
    for witness in sorted(state.membership.witnesses & lead.progress.keys()):
        pump(state, lead, witness)


def _is_own_term(state: NodeState, lead: Leadership, index: Index) -> bool:
    assert lead.term_begin is not None
    return index >= lead.term_begin or not state.policy.entries_have_terms


def _rewind(state: NodeState, lead: Leadership, peer: NodeId, reply: AppendReply) -> None:
    """Go on behind the last entry that both logs have; one reply is enough to know it."""
    progress = lead.progress[peer]
    tail = reply.tail
    if tail is None:
        # Its writer is busy, and what is in flight was dropped. When it can take entries again it
        # says by itself where its log ends (``follower.invite_leader``).
        if progress.mode is ProgressMode.REPLICATE:
            progress.turn(ProgressMode.PROBE, Index(progress.match + 1))
        return
    end = tail.before.index + sum(run.count for run in tail.runs)
    if end < progress.match:
        # Its disk was changed. To count on less than it had is always safe; not to send it what it
        # lacks would leave it behind for ever.
        state.note(f"{peer} lost entries that it had held: {progress.match} before, {end} now")
        progress.match = NO_INDEX
    common = state.log.agreement(tail)
    if common is not None:
        progress.turn(ProgressMode.REPLICATE, Index(max(common, progress.match) + 1))
        # What is refused before the peer hears of this is no news.
        lead.round += 1
        progress.rewound = lead.round
        if progress.next > state.log.last_index:
            _probe(state, lead, peer, progress)
        return
    # At least one entry further back each time, or two logs that part before the tail would repeat
    # the same question for ever.
    following = max(min(progress.next - 1, tail.before.index), progress.match + 1)
    if following < state.log.first:
        _ship_files(state, peer, progress)
        return
    progress.turn(ProgressMode.PROBE, Index(following))
    _probe(state, lead, peer, progress)


def _ship_files(state: NodeState, peer: NodeId, progress: Progress) -> None:
    progress.turn(ProgressMode.FILES, max(state.log.first, Index(progress.match + 1)))
    state.out.ship_files.append(ShipFiles(peer, state.log.last))


def _probe(state: NodeState, lead: Leadership, peer: NodeId, progress: Progress) -> None:
    if lead.attesting is not None and peer in state.membership.bodiless:
        attesting.heartbeat(state, lead, lead.attesting, peer)
        return
    previous = state.log.entry(Index(max(progress.next, state.log.first) - 1))
    state.send(peer, Append(state.term, previous, (), state.commit, lead.round))


def _quorum_horizon(state: NodeState) -> int:
    return state.now - state.policy.timing.election_max


def _peers(state: NodeState) -> set[NodeId]:
    return set(state.membership.members - {state.node})
