"""The consensus core of one node: events in, effects out. No clock, no socket, no file.

The process around it (``daemon.raft_process``) reports what the writer has done and carries out the
effects. Invariants:

* ``commit`` never goes back, and never passes the entries that a majority has;
* only entries of the current term are committed by counting (Raft paper, section 5.4.2): the first
  one is the empty entry that every leader proposes at once;
* a term is granted to the writer only after term and vote are durable, and to one leader alone.
"""

from __future__ import annotations

from collections.abc import Set

from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.messages import Effects, EntryId, HardState, RaftRole
from ledgermq.raft.quorum import committed_index, has_majority


class RaftCore:
    """Term, vote, role and commit index of one member of a group."""

    def __init__(
        self,
        node: NodeId,
        voters: Set[NodeId],
        hard_state: HardState,
        *,
        commit: Index,
        entries_have_terms: bool,
    ) -> None:
        """A follower that knows no leader.

        Args:
            voters: all voting members, this one included.
            hard_state: what was persisted last.
            commit: an index known to be committed, -1 when none is.
            entries_have_terms: false with a plain CommitLog, which is never replicated: there is no
                empty entry then, and what the only member has is committed.
        """
        assert node in voters
        assert entries_have_terms or len(voters) == 1
        self.node = node
        self.voters = frozenset(voters)
        self.hard_state = hard_state
        self.role = RaftRole.FOLLOWER
        self.commit = commit
        self.granted = False
        self._entries_have_terms = entries_have_terms
        self._votes: set[NodeId] = set()
        self._match: dict[NodeId, Index] = {}
        self._term_begin: Index | None = None

    @property
    def term(self) -> Term:
        """Current term."""
        return self.hard_state.term

    def log_ready(self, last: EntryId) -> Effects:
        """The writer has recovered the log and holds no grant; ``last`` is its last entry.

        A leader whose writer was replaced grants its own term again: the term is still its own, and
        whatever the old writer had stamped is in the log or was never seen by anyone.
        """
        if self.role is RaftRole.LEADER:
            self.granted = False
            return Effects(grant=self.term)
        return self.campaign(last)

    def campaign(self, last: EntryId) -> Effects:
        """Stand for election in the next term (Raft paper, section 5.2)."""
        assert self.role is not RaftRole.LEADER
        # A term that is in the log has been some leader's: the next one must be above it.
        term = Term(max(self.term, last.term) + 1)
        self.role = RaftRole.CANDIDATE
        self.hard_state = HardState(term, self.node)
        self._votes = {self.node}
        if not has_majority(self.voters, self._votes):
            return Effects(persist=self.hard_state, revoke=True)
        return self._lead(persist=self.hard_state)

    def writer_granted(self, term: Term, last: EntryId) -> Effects:
        """The writer stamps in ``term`` from now on; ``last`` is the entry before its first."""
        if self.role is not RaftRole.LEADER or term != self.term or self.granted:
            return Effects()
        self.granted = True
        if self._term_begin is None:
            self._term_begin = Index(last.index + 1)
        if self._entries_have_terms and last.term < term:
            return Effects(propose=term)
        return Effects()

    def entries_held(self, member: NodeId, last: Index) -> Effects:
        """``member`` has all entries up to ``last``, in the sense of the acknowledgement mode."""
        self._match[member] = max(last, self._match.get(member, NO_INDEX))
        if self.role is not RaftRole.LEADER or self._term_begin is None:
            return Effects()
        index = committed_index(self.voters, self._match)
        if self._entries_have_terms and index < self._term_begin:
            return Effects()
        if index <= self.commit:
            return Effects()
        self.commit = index
        return Effects(commit=index)

    def _lead(self, *, persist: HardState) -> Effects:
        self.role = RaftRole.LEADER
        self.granted = False
        self._match = {}
        self._term_begin = None
        return Effects(persist=persist, grant=self.term)
