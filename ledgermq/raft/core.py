"""The consensus core of one node: events in, effects out. No clock, no socket, no file.

The process around it (``raft_node.raft_process``) reports what the writer has done, what peers
have sent and what time it is, and carries out the effects of each event in their order before the
next event. Invariants:

* ``commit`` never goes back, and passes neither what a majority holds nor what this node holds;
* only entries of the current term are committed by counting (Raft paper, section 5.4.2): the first
  one is the empty entry that every leader proposes at once;
* a term is granted to the writer only after term and vote are durable, and to one leader alone.

Messages may be lost, repeated and reordered. The bytes of the entries travel beside an ``Append``.
A node takes requests from members that it does not know of: it may lack the entries that made them
members. Strangers are kept off by the transport, which knows the cluster; replies of unknown
members count for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ledgermq.formats.kernels.kernel import SteadyLine
from ledgermq.model.errors import BusyError, ConfigError, NotLeaderError
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.effects import NO_EFFECTS, Effects, LeaderChange, Outbox, ReadAnswer, ReplicateTo
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership, MembershipHistory, change_problem
from ledgermq.raft.messages import (
    Append,
    AppendReply,
    Attest,
    EntryId,
    HardState,
    Message,
    PreVote,
    PreVoteReply,
    RaftRole,
    ReadReply,
    ReadRequest,
    TimeoutNow,
    Vote,
    VoteReply,
)
from ledgermq.raft.quorum import has_majority
from ledgermq.raft.roles import candidate, follower, leader, led, transfer
from ledgermq.raft.roles.leadership import Leadership
from ledgermq.raft.roles.node_state import NodeState, Policy, WriterState
from ledgermq.raft.roles.progress import ProgressMode
from ledgermq.raft.status import CoreStatus, majority_heard, status, why_no_leader
from ledgermq.raft.timing import NEVER, FlowLimits, Timing


class RaftCore:
    """Term, vote, role and commit index of one member of a group.

    Attributes:
        line: the straight line through this core: whatever it takes need not go the long way,
            through the methods here. It works on the same state (docs/decisions/0038).
    """

    def __init__(
        self,
        node: NodeId,
        membership: Membership,
        hard_state: HardState,
        *,
        commit: Index,
        entries_have_terms: bool,
        timing: Timing,
        flow: FlowLimits,
        preferred: tuple[NodeId, ...] = (),
        seed: int,
        now: int,
    ) -> None:
        """A follower that knows no leader and does nothing before ``log_ready``.

        Args:
            membership: the one that the group began with, or the last one known to be committed.
            hard_state: what was persisted last.
            commit: an index known to be committed, -1 when none is.
            entries_have_terms: false with a plain CommitLog, which is never replicated: there is no
                empty entry then, and what the only member has is committed.
            preferred: who should lead, the best first.
            seed: of the randomised timeouts; another one on each node.
        """
        assert entries_have_terms or membership.members == {node}
        policy = Policy(timing, flow, preferred, entries_have_terms)
        self._state = NodeState(
            node, membership, hard_state, commit=commit, policy=policy, seed=seed, now=now
        )
        self.line = SteadyLine(
            self._state,
            follower=RaftRole.FOLLOWER,
            idle=WriterState.IDLE,
            granted=WriterState.GRANTED,
            replicate=ProgressMode.REPLICATE,
        )

    @property
    def node(self) -> NodeId:
        """This node."""
        return self._state.node

    @property
    def term(self) -> Term:
        """Current term."""
        return self._state.term

    @property
    def role(self) -> RaftRole:
        """Role in the current term."""
        return self._state.role

    @property
    def leader(self) -> NodeId | None:
        """Leader of the current term, as far as it is known."""
        return self._state.leader

    @property
    def commit(self) -> Index:
        """Commit index."""
        return self._state.commit

    @property
    def last(self) -> EntryId:
        """Last entry of the log, the ones included that the writer was just handed."""
        return self._state.log.last

    def term_of(self, index: Index) -> Term | None:
        """Term of an entry of the log; None when it is not known, at either end."""
        return self._state.log.term_of(index)

    @property
    def granted(self) -> bool:
        """Whether the writer stamps in the current term."""
        return self._state.writer is WriterState.GRANTED

    @property
    def membership(self) -> Membership:
        """The one in force."""
        return self._state.membership

    @property
    def now(self) -> int:
        """Tick of the latest event that had one."""
        return self._state.now

    def under_way(self, peer: NodeId) -> int:
        """Appends to ``peer`` without a reply; 0 unless this node leads."""
        lead = self._state.leadership
        progress = None if lead is None else lead.progress.get(peer)
        return 0 if progress is None else len(progress.inflight)

    def hands_over_to(self, peer: NodeId) -> bool:
        """Whether ``peer`` is about to take the lead from this node, and catches up for that."""
        lead = self._state.leadership
        transfer = None if lead is None else lead.transfer
        return transfer is not None and transfer.target == peer

    @property
    def deadline(self) -> int:
        """Tick at which ``tick`` has work next."""
        lead = self._state.leadership
        if lead is None:
            return self._state.election_deadline
        due = lead.next_heartbeat if lead.progress else NEVER
        return min(due, lead.transfer.deadline) if lead.transfer else due

    def tick(self, now: int) -> Effects:
        """Time has come to ``now``."""
        state = self._turn(now)
        if state.leadership is not None:
            leader.tick(state, state.leadership)
        elif now >= state.election_deadline:
            candidate.election_due(state)
        overdue = [read for read, until in state.forwarded_reads.items() if now >= until]
        for read in overdue:
            del state.forwarded_reads[read]
            state.out.reads.append(ReadAnswer(read, None))
        return self._effects()

    def receive(self, now: int, source: NodeId, message: Message) -> Effects:
        """A message of ``source`` has come at ``now``.

        Raises:
            CorruptLogError: the logs of the group contradict what was committed here.
        """
        state = self._turn(now)
        match message:
            case Append():
                follower.on_append(state, source, message)
            case AppendReply():
                leader.on_append_reply(state, source, message)
            case Attest():
                follower.on_attest(state, source, message)
            case PreVote() | Vote():
                candidate.on_vote_request(state, source, message)
            case PreVoteReply() | VoteReply():
                candidate.on_vote_reply(state, source, message)
            case TimeoutNow():
                candidate.on_timeout_now(state, source, message)
            case ReadRequest():
                self._read_for(source, message.read)
            case ReadReply():
                if state.forwarded_reads.pop(message.read, None) is not None:
                    state.out.reads.append(ReadAnswer(message.read, message.index))
        return self._effects()

    def log_damaged(self, lost: EntryId) -> Effects:
        """The log lacks entries up to ``lost`` that this node once held.

        To be told before ``log_ready``. Until it holds as much again this node votes as if it had
        them, does not campaign, and says that it could not lead (docs/decisions/0010).
        """
        state = self._state
        state.lost = lost
        state.note(f"its log lost entries up to {lost} to damage: follows until it has them again")
        if state.role is not RaftRole.FOLLOWER:
            state.follow(state.term, None)
        return self._effects()

    def log_ready(self, last: EntryId, log: EntryTerms | None = None) -> Effects:
        """A writer has recovered the log and holds no grant; ``last`` is its last entry.

        Once for each writer, and before anything that it has written is reported. A leader whose
        writer was replaced grants its own term again: whatever the old writer had stamped is in the
        log or was never seen by anyone. If entries are missing that were seen, it steps down, for
        it would give their names to others.

        Args:
            log: the terms of the log, needed the first time unless the group has one member.

        Raises:
            CorruptLogError: the log ends below the commit index.
        """
        state = self._state
        lost = state.log_recovered(last, log)
        lead = state.leadership
        if lead is not None:
            lead.change_proposed = False
            if lost:
                state.note(f"steps down: its log lost entries behind {last}")
                state.follow(state.term, None)
            else:
                leader.log_settled(state, lead)
        elif state.role is not RaftRole.FOLLOWER:
            # Votes were asked for a log that may have been longer.
            state.follow(state.term, None)
        else:
            follower.invite_leader(state)
        is_alone = state.membership.voters == {state.node}
        if state.leadership is None and is_alone and not state.barriers():
            candidate.pre_campaign(state)
        return self._effects()

    def writer_revoked(self, last: EntryId) -> Effects:
        """The writer has given its term back; ``last`` is the last entry that it stamped."""
        if self._state.writer is not WriterState.REVOKING:
            return self._effects()
        return self.log_ready(last)

    def writer_granted(self, term: Term, last: EntryId) -> Effects:
        """The writer has been given ``term``; ``last`` is the entry before its first.

        It stamps only if that is the end with which this node was elected: what else was counted
        then, handed to it and not written, it lacks, and a leader that lacks entries steps down.
        """
        state = self._state
        lead = state.leadership
        if lead is None or term != state.term or state.writer is not WriterState.GRANTING:
            return self._effects()
        elected_with = state.log.last
        state.log_recovered(last, None)
        # Before a step-down: only what is known to be granted is revoked by it.
        state.writer = WriterState.GRANTED
        if last != elected_with:
            state.note(
                f"steps down: elected with a log up to {elected_with}, the writer has {last}"
            )
            state.follow(state.term, None)
            return self._effects()
        if lead.term_begin is None:
            lead.term_begin = Index(last.index + 1)
        # A writer that took another's place gets the same term again, and the entry that opens it
        # may be in the log already.
        if state.policy.entries_have_terms and last.term < term:
            state.out.propose = term
        return self._effects()

    def entries_written(self, last: EntryId) -> Effects:
        """The leader's own writer has stamped entries up to ``last``.

        A membership among them is told before (``membership_appended``).
        """
        leader.entries_written(self._state, last)
        return self._effects()

    def entries_held(self, member: NodeId, last: Index) -> Effects:
        """This node holds all entries up to ``last``, in the sense of the acknowledgement mode.

        The cursor was read after the last cut of the log was confirmed. At a leader this says also
        that they were written.
        """
        state = self._state
        assert member == state.node, member
        if state.writer in (WriterState.UNREAD, WriterState.TRUNCATING):
            return self._effects()
        leader.entries_written(state, EntryId(state.term, last))
        state.held = max(state.held, min(last, state.log.last_index))
        if state.lost is not None:
            state.regain()
        if state.leadership is not None:
            leader.entries_held(state, state.leadership)
        else:
            follower.entries_held(state)
        return self._effects()

    def log_truncated(self, last: EntryId) -> Effects:
        """The writer has cut the log as it was told, durably; ``last`` is its last entry now.

        Raises:
            CorruptLogError: the log ends below the commit index.
        """
        if self._state.writer is WriterState.TRUNCATING:
            follower.log_truncated(self._state, last)
        return self._effects()

    def entries_dropped(self, last: EntryId) -> Effects:
        """Entries behind ``last`` that were accepted could not be handed to the writer."""
        state = self._state
        if state.leadership is None and state.writer is WriterState.IDLE:
            state.log_recovered(last, None)
        return self._effects()

    def log_compacted(self, first: Index) -> Effects:
        """The files before entry ``first`` were deleted."""
        assert first <= self._state.commit + 1, (first, self._state.commit)
        self._state.log.compact(first)
        return self._effects()

    def log_replaced(self, log: EntryTerms, commit: Index, membership: Membership) -> Effects:
        """The log was replaced, durably, by files that the leader has shipped.

        Args:
            commit: what is committed of it, by what the leader said.
            membership: the one in force before its first entry; later ones are told by
                ``membership_appended``.
        """
        state = self._state
        assert state.writer is WriterState.IDLE, state.writer
        assert state.leadership is None and commit <= log.last.index, (commit, log.last)
        state.log = log
        state.history = MembershipHistory(membership)
        state.held = log.last.index
        state.regain()
        if commit > state.commit:
            state.set_commit(commit)
        follower.invite_leader(state)
        return self._effects()

    def lacks_before(self, source: NodeId, term: Term, first: Index) -> bool:
        """Whether this node follows ``source`` in ``term``, whose log begins with entry ``first``,
        and lacks what was before it: then whole files may take the place of its log.

        What it has of other entries was never committed, or the leader would know of one that both
        have.
        """
        return follower.lacks_before(self._state, source, term, first)

    def replicated(self, request: ReplicateTo, last: Index, size_bytes: int) -> Effects:
        """Entries from ``request.next`` to ``last`` were read; at most one ``Append`` to send.

        The bytes go beside it. Nothing is to be sent when ``request`` is out of date. The process
        takes the whole request and not the peer alone, so that a late call cannot name entries that
        it has not read.
        """
        leader.replicated(self._state, request, last, size_bytes)
        return self._effects()

    def request(self, peer: NodeId, first: Index, last: Index) -> ReplicateTo:
        """What asks for the entries from ``first`` to ``last``, of this log, for ``peer``."""
        previous = self._state.log.entry(Index(first - 1))
        return ReplicateTo(peer, self._state.term, previous, first, last)

    def read_index(self, read: int) -> Effects:
        """Which index must reader ``read`` have seen? The answer comes as ``reads``, in any event.

        ``read`` is chosen by the process, a new one for each question.
        """
        state = self._state
        if state.leadership is not None:
            self._read_for(state.node, read)
        elif state.leader is not None:
            state.forwarded_reads[read] = state.now + state.policy.timing.election_max
            state.send(state.leader, ReadRequest(state.term, read))
        else:
            state.out.reads.append(ReadAnswer(read, None))
        return self._effects()

    def transfer_leadership(self, target: NodeId) -> Effects:
        """Hand over to ``target``, and lead on if that takes too long.

        Raises:
            NotLeaderError: this node does not lead.
            BusyError: a hand-over is under way, or the target does not answer or could not lead.
            ConfigError: ``target`` may never lead.
        """
        state, lead = self._state, self._leading()
        if target == state.node:
            return self._effects()
        if target not in state.membership.electable:
            raise ConfigError("target is no voter that can lead", target=target)
        if lead.transfer is not None:
            raise BusyError("a hand-over is under way", target=lead.transfer.target)
        if not transfer.is_able(state, lead.progress[target]):
            raise BusyError("target does not answer or cannot lead now", target=target)
        transfer.start(state, lead, target, hurried=False)
        return self._effects()

    def propose_membership(self, membership: Membership) -> Effects:
        """Have an entry with ``membership`` written.

        Raises:
            NotLeaderError: this node does not lead.
            BusyError: another change is under way, nothing of this term is committed yet, the
                writer does not stamp, or the new voter has not caught up.
            ConfigError: the change is none that is allowed, or this node would leave.
        """
        state, lead = self._state, self._leading()
        problem = change_problem(state.membership, membership)
        if problem is not None:
            raise ConfigError(problem)
        if state.node not in membership.electable:
            # It would go with entries that a witness has, and no one who could lead.
            raise ConfigError("the leader cannot leave: hand over first", leader=state.node)
        if not leader.has_committed(state, lead) or lead.transfer is not None:
            # Two leaders that each begin a change without this could both reach a majority.
            raise BusyError("nothing of this term is committed yet, or a hand-over is under way")
        if state.writer is not WriterState.GRANTED:
            # What was proposed before the grant counts as lost when the answer to it comes.
            raise BusyError("the writer is about to begin anew")
        if lead.change_proposed or state.history.index > state.commit:
            raise BusyError("a change of the membership is under way")
        for voter in membership.full - state.membership.voters:
            if not transfer.is_near(state, lead.progress[voter]):
                raise BusyError("learner has not caught up", learner=voter)
        heard = leader.heard_since(state, lead, state.now - state.policy.timing.election_max)
        if not has_majority(membership.voters, heard):
            raise BusyError("a majority of the new voters does not answer")
        lead.change_proposed = True
        state.out.propose_membership = membership
        return self._effects()

    def membership_appended(self, index: Index, membership: Membership) -> Effects:
        """The entry at ``index`` says ``membership``: it is in force now, committed or not.

        Told after an append was accepted, or before the leader's own entry is reported as written;
        after a start for every such entry of the log, before ``log_ready``.
        """
        state = self._state
        state.history.put(index, membership, commit=state.commit)
        if state.leadership is not None:
            state.leadership.change_proposed = False
            leader.membership_changed(state, state.leadership)
        return self._effects()

    def disk_is_sick(self, sick: bool) -> Effects:
        """Whether this node's disk answers late or with errors: then it does not lead."""
        state = self._state
        changed = sick != state.sick
        state.sick = sick
        lead = state.leadership
        if changed and sick and lead is not None:
            if lead.transfer is not None:
                lead.transfer.hurried = True
                transfer.step(state, lead)
            else:
                transfer.disk_sick(state, lead)
        return self._effects()

    def disk_is_full(self, full: bool) -> Effects:
        """Whether this node's disk has no room for what producers send.

        It may lead all the same: a group whose disks are all full is still to be read. While
        another member that could lead has room, the lead is handed over to it.
        """
        state = self._state
        state.full = full
        lead = state.leadership
        if full and lead is not None:
            transfer.leave_to_others(state, lead)
        return self._effects()

    def version_is_outdated(self) -> Effects:
        """The log has what only a newer version understands: this node does not lead any more.

        However long nobody else can, unlike with a sick disk: what it would stamp follows rules
        that the group has left. It replicates and votes on, for its log is whole. There is no way
        back: another version runs in another process.
        """
        state = self._state
        if not state.outdated:
            state.outdated = True
            state.note("its log needs a newer version than it runs: it does not lead any more")
            if state.role is not RaftRole.FOLLOWER:
                state.follow(state.term, None)
        return self._effects()

    def status(self) -> CoreStatus:
        """Where this node is."""
        return status(self._state)

    def majority_heard(self, now: int) -> int | None:
        """Tick of the last proof that a majority has one leader; None while none is known."""
        return majority_heard(self._state, now)

    def alone_until(self) -> int | None:
        """Tick before which no other member is elected; None: this node does not lead, or not
        surely alone. See ``roles.leader.alone_until``.
        """
        lead = self._state.leadership
        return None if lead is None else leader.alone_until(self._state, lead)

    @property
    def commits_alone(self) -> bool:
        """Whether what this node holds is committed by that alone, as long as no event comes: it
        leads a group in which nobody else is asked, something of its term is committed, and nothing
        is about to change that.
        """
        state = self._state
        lead = state.leadership
        return (
            lead is not None
            and not lead.progress
            and state.membership.members == {state.node}
            and state.writer is WriterState.GRANTED
            and not (lead.change_proposed or lead.transfer)
            and state.history.index <= state.commit
            and leader.has_committed(state, lead)
        )

    @property
    def follows_level(self) -> bool:
        """Whether the writer may take by itself what the leader sends next: this node follows, all
        of its log is surely the leader's and ends in this term, and who belongs to the group is
        settled.
        """
        state = self._state
        log = state.log
        membership = state.membership
        return (
            state.role is RaftRole.FOLLOWER
            and state.leader is not None
            and state.writer is WriterState.IDLE
            and bool(log.terms)
            and log.terms[-1] == state.term
            and state.following.verified == log.last_index
            and state.history.index <= state.commit
            and state.node in membership.voters - membership.witnesses
            and state.lost is None
            and not (state.sick or state.full or state.outdated or state.forwarded_reads)
        )

    @property
    def heard_round(self) -> int:
        """The leader's last round of heartbeats that this follower has heard of."""
        return self._state.following.round

    def run_begins(self) -> None:
        """The writer takes by itself what the leader sends it: what it may leave behind that was
        not told when it dies is of this term.
        """
        assert self.follows_level
        self._state.granted_term = self._state.term

    def run_told(
        self,
        last: EntryId,
        *,
        held: Index,
        commit: Index,
        heard: int,
        round_: int,
        round_began: int,
    ) -> None:
        """What the writer has done by itself, up to now: to be told before any other event comes.

        Args:
            last: last entry of the log; those behind what was known are the leader's.
            held: last one that counts for an acknowledgement.
            commit: what it has published.
            heard: tick at which the leader was heard of last.
            round_: the last one of the leader's rounds.
            round_began: tick at which that was heard of first.
        """
        follower.run_told(
            self._state,
            last,
            held=held,
            commit=commit,
            heard=heard,
            round_=round_,
            round_began=round_began,
        )

    def peer_gone(self, now: int, peer: NodeId) -> int | None:
        """The connection to ``peer`` has ended, as that of a process does which dies, and as others
        may, too.

        Returns:
            ticks until this node campaigns for that, unless a leader is heard of; None: it does
            not.
        """
        state = self._turn(now)
        return state.election_deadline - now if follower.leader_gone(state, peer) else None

    def run_ended(self) -> Effects:
        """The writer takes nothing by itself any more, and all that it took was told."""
        follower.invite_leader(self._state)
        return self._effects()

    @property
    def leads_level(self) -> bool:
        """Whether the writer may feed the other members by itself, once these hold all that they
        were sent: this node leads, something of its term is committed, and nothing is about to
        change who counts.
        """
        lead = self._state.leadership
        return lead is not None and led.is_level(self._state, lead)

    def hold_sends(self) -> None:
        """Send no entries until ``resume_sends``, or until a run of the writer has ended."""
        led.hold_sends(self._state, holds=True)

    def resume_sends(self) -> Effects:
        """Send what was held back."""
        lead = self._state.leadership
        if lead is None:
            led.hold_sends(self._state, holds=False)
        else:
            led.resume(self._state, lead)
        return self._effects()

    def matches(self) -> Mapping[NodeId, tuple[Index, bool]]:
        """The last entry that each other member holds, and whether it holds all that it was sent
        and lacks little; to be asked of a leader.
        """
        lead = self._leading()
        return {
            peer: (progress.match, led.is_drained(self._state, progress))
            for peer, progress in lead.progress.items()
        }

    @property
    def round(self) -> tuple[int, Index]:
        """A leader's last round of heartbeats, and the first entry of its term."""
        lead = self._leading()
        assert lead.term_begin is not None
        return lead.round, lead.term_begin

    def led_run_told(
        self,
        last: EntryId,
        matches: Mapping[NodeId, Index],
        *,
        held: Index,
        commit: Index,
        confirmed: int,
        round_: int,
    ) -> None:
        """What the writer has done by itself while this node led, up to now: to be told before any
        other event comes.

        Args:
            last: last entry of the log.
            matches: the last entry that each member holds which the writer feeds.
            held: the last one that counts for an acknowledgement.
            commit: what it has published.
            confirmed: tick at which the last round began that a majority has answered; 0: none.
            round_: the last one of its rounds.
        """
        led.told(
            self._state,
            last,
            matches,
            held=held,
            commit=commit,
            confirmed=confirmed,
            round_=round_,
        )

    def led_run_ended(self, fed: Collection[NodeId]) -> Effects:
        """The writer feeds nobody any more, and all that it did was told."""
        lead = self._state.leadership
        if lead is None:
            led.hold_sends(self._state, holds=False)
        else:
            led.ended(self._state, lead, fed)
        return self._effects()

    def led_tick(self, now: int, fed: Collection[NodeId]) -> Effects | None:
        """Time has come to ``deadline`` while the writer feeds ``fed``, and what it has done was
        told: messages to the others. None: it is for ``tick`` to judge, and nothing has changed.
        """
        state = self._turn(now)
        lead = state.leadership
        if lead is None or not led.is_level(state, lead) or transfer.preferred_now(state, lead):
            return None
        led.tick(state, lead, fed)
        return self._effects()

    def silent_for(self, peer: NodeId) -> int:
        """Ticks since ``peer`` was heard of; 0 unless this node leads and feeds it."""
        state = self._state
        lead = state.leadership
        progress = None if lead is None else lead.progress.get(peer)
        return 0 if progress is None else state.now - progress.heard

    @property
    def lacks_entries(self) -> bool:
        """Whether its log was damaged, and does not hold again all that it had held."""
        return self._state.lost is not None

    def why_no_leader(self) -> list[str]:
        """Why nobody leads, in words; empty when somebody does."""
        return why_no_leader(self._state)

    def _turn(self, now: int) -> NodeState:
        state = self._state
        state.now = max(state.now, now)
        return state

    def _leading(self) -> Leadership:
        state = self._state
        if state.leadership is None:
            raise NotLeaderError("this node does not lead", leader=state.leader, term=state.term)
        return state.leadership

    def _read_for(self, reader: NodeId, read: int) -> None:
        state = self._state
        lead = state.leadership
        # Before that our commit index may be below what the last leader has acknowledged (thesis,
        # section 6.4).
        if lead is not None and leader.has_committed(state, lead):
            leader.read_for(state, lead, reader, read)
        else:
            state.answer_read(reader, read, None)

    def _effects(self) -> Effects:
        state = self._state
        published = state.published
        if state.term != published.term or state.leader != published.leader:
            state.published = LeaderChange(state.leader, state.term)
            state.out.leader = state.published
        if state.out.is_empty():
            return NO_EFFECTS
        effects = state.out.close()
        state.out = Outbox()
        return effects
