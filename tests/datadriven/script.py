"""Scenario files: a command in each paragraph, and behind ``----`` what the group then says.

    start n0 n1 n2              nodes of one group, in this order; ``n2w`` is a witness, ``n2b``
                                one without bodies
    preferred n1 n0             set before ``start``
    log n0 1 1 2                before ``start``: terms of the entries that a node has
    term n0 3 [n1]              before ``start``: its term and its vote
    run 500                     let that many ticks pass
    until leader [n1]           at most 5,000 ticks
    isolate n2 | cut n0 n1 | heal
    crash n0 | restart n0 | kill-writer n0 | stop-writer n0 | start-writer n0
    send n0 3                   a client sends three messages to n0
    sick n0 | well n0 | outdated n0 | upgraded n0
    transfer n0 n1 | read n0
    members n0 n0 n1 n2 +n3     propose: voters, ``+`` learners, ``w`` witnesses
    join n3                     start a node that is not yet a member
    compact n0 40
    status [n0]                 role, term, leader, last entry, commit of every node
    logs                        terms of the entries
    why n0 | trace | peers n0 | memberships
    append n1 from=n0 term=3 previous=2/5 runs=3,3 commit=5     hand n1 a message
    vote n1 from=n0 term=3 last=2/5 [transfer]
    prevote n1 from=n0 term=3 last=2/5
    replies                     messages since the last ``replies``

Timeouts come from a fixed seed, so that a run is the same everywhere.
``LEDGERMQ_REWRITE=1 python -m pytest tests/datadriven`` writes down what is said now: look at the
difference.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from ledgermq.model.errors import LedgerError
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import Append, EntryId, HardState, Message, PreVote, TermRun, Vote
from tests.raft_group.disk import Entry
from tests.raft_group.group import RaftGroup


class Script:
    """Carries out the commands of one file."""

    def __init__(self) -> None:
        self._group: RaftGroup | None = None
        self.preferred: list[str] = []
        self.logs: dict[str, list[int]] = {}
        self.terms: dict[str, tuple[int, str | None]] = {}
        self.seen = 0
        self.sent = 0

    def say(self, line: str) -> str:
        """Output of the command in ``line``."""
        verb, *arguments = line.split()
        command = getattr(self, "do_" + verb.replace("-", "_"))
        try:
            said = command(*arguments)
        except LedgerError as error:
            return f"{type(error).__name__}: {error}"
        return said or "ok"

    @property
    def group(self) -> RaftGroup:
        assert self._group is not None, "start comes first"
        return self._group

    def do_preferred(self, *names: str) -> None:
        self.preferred = list(names)

    def do_log(self, name: str, *terms: str) -> None:
        self.logs[name] = [int(term) for term in terms]

    def do_term(self, name: str, term: str, vote: str | None = None) -> None:
        self.terms[name] = (int(term), vote)

    def do_start(self, *names: str) -> None:
        self._group = RaftGroup(1, membership(names))
        self._group.preferred = tuple(NodeId(name) for name in self.preferred)
        self._group.sent = []
        for name in names:
            if name.endswith("b"):
                self._group.add_witness(name[:-1])
                self._group.history.clear()
            else:
                self._add(name.rstrip("w"))

    def do_join(self, name: str) -> None:
        self._add(name)

    def do_run(self, ticks: str) -> None:
        self.group.run(int(ticks))

    def do_until(self, what: str, name: str | None = None) -> str:
        assert what == "leader"
        for _ in range(500):
            leader = self.group.leader()
            if leader is not None and name in (None, leader.name):
                self.group.run(60)
                return self.do_status(leader.name)
            self.group.run(10)
        return "no leader"

    def do_isolate(self, name: str) -> None:
        self.group.isolate(name)

    def do_cut(self, source: str, target: str) -> None:
        self.group.blocked.add((source, target))

    def do_heal(self) -> None:
        self.group.heal()

    def do_crash(self, name: str) -> str:
        self.group.crash(name)
        if name in self.group.witnesses:
            return f"knows of {self.group.witnesses[name].kept.last}"
        return f"log ends with {self.group.nodes[name].disk.last}"

    def do_restart(self, name: str) -> None:
        self.group.start(name)

    def do_kill_writer(self, name: str) -> None:
        self.group.nodes[name].stop_writer()
        self.group.schedule(20, "writer", name)

    def do_stop_writer(self, name: str) -> None:
        self.group.nodes[name].stop_writer()

    def do_start_writer(self, name: str) -> None:
        self.group.schedule(0, "writer", name)

    def do_send(self, name: str, count: str) -> str:
        done = 0
        for _ in range(int(count)):
            self.sent += 1
            done += self.group.propose(name, f"m{self.sent}")
        return f"{done} taken"

    def do_sick(self, name: str) -> str:
        self.group.nodes[name].sick = True
        return self.group.ask(name, "disk_is_sick", True)

    def do_well(self, name: str) -> str:
        self.group.nodes[name].sick = False
        return self.group.ask(name, "disk_is_sick", False)

    def do_outdated(self, name: str) -> str:
        self.group.nodes[name].outdated = True
        return self.group.ask(name, "version_is_outdated")

    def do_upgraded(self, name: str) -> str:
        said = self.do_crash(name)
        self.group.nodes[name].outdated = False
        self.group.start(name)
        return said

    def do_transfer(self, name: str, target: str) -> str:
        return self.group.ask(name, "transfer_leadership", NodeId(target))

    def do_read(self, name: str) -> str:
        read = self.group.read(name)
        self.group.run(20)
        reads = self.group.nodes[name].reads
        return f"sees {reads[read]}" if read in reads else "no answer"

    def do_members(self, name: str, *names: str) -> str:
        return self.group.ask(name, "propose_membership", membership(names))

    def do_compact(self, name: str, first: str) -> str:
        self.group.nodes[name].disk.compact(int(first))
        return self.group.ask(name, "log_compacted", Index(int(first)))

    def do_status(self, *names: str) -> str:
        lines = []
        for name in names or self.group.names:
            if name in self.group.witnesses:
                lines.append(self._witness(name))
                continue
            core = self.group.nodes[name].core
            if core is None:
                lines.append(f"{name} down")
                continue
            now = core.status()
            hand = f" hands over to {now.transfer}" if now.transfer else ""
            lines.append(
                f"{name} {now.role.value} term={now.term} leader={now.leader or '-'}"
                f" last={now.last} commit={now.commit}{hand}"
                f"{' leans' if now.leans else ''}"
            )
        return "\n".join(lines)

    def _witness(self, name: str) -> str:
        core = self.group.witnesses[name].core
        if core is None:
            return f"{name} down"
        return f"{name} witness term={core.term} leader={core.leader or '-'} knows of {core.last}"

    def do_peers(self, name: str) -> str:
        core = self.group.nodes[name].core
        assert core is not None
        return "\n".join(
            f"{peer.peer} {peer.mode.value} match={peer.match} next={peer.next}"
            for peer in core.status().peers
        )

    def do_logs(self) -> str:
        lines = []
        for name, node in self.group.nodes.items():
            runs = [
                f"{term}x{len([*entries])}"
                for term, entries in groupby(entry.term for entry in node.disk.entries)
            ]
            begin = f"from {node.disk.first}: " if node.disk.first else ""
            lines.append(f"{name} {begin}{' '.join(runs) or 'empty'}")
        return "\n".join(lines)

    def do_memberships(self) -> str:
        lines = []
        for name, node in self.group.nodes.items():
            if node.core is not None:
                now = node.core.membership
                kinds = dict.fromkeys(now.witnesses, "w") | dict.fromkeys(now.bodiless, "b")
                voters = [voter + kinds.get(voter, "") for voter in sorted(now.voters)]
                learners = [f"+{learner}" for learner in sorted(now.learners)]
                lines.append(f"{name} {' '.join(voters + learners)}")
        return "\n".join(lines)

    def do_why(self, name: str) -> str:
        core = self.group.nodes[name].core
        assert core is not None
        return "\n".join(core.why_no_leader()) or "there is a leader"

    def do_trace(self) -> str:
        lines = [line.split(maxsplit=1)[1] for line in self.group.history]
        self.group.history.clear()
        return "\n".join(line for line in lines if " commits " not in line) or "nothing"

    def do_append(self, target: str, *pairs: str) -> None:
        values = dict(pair.split("=") for pair in pairs)
        terms = [Term(int(term)) for term in values.get("runs", "").split(",") if term]
        runs = tuple(TermRun(term, len([*same])) for term, same in groupby(terms))
        message = Append(
            Term(int(values["term"])),
            entry(values["previous"]),
            runs,
            Index(int(values.get("commit", "-1"))),
            int(values.get("round", "1")),
        )
        self._hand(target, values["from"], message, [Entry(term, f"x{term}") for term in terms])

    def do_vote(self, target: str, *pairs: str) -> None:
        values = dict(pair.split("=") for pair in pairs if "=" in pair)
        transfer = "transfer" in pairs
        vote = Vote(Term(int(values["term"])), entry(values["last"]), transfer)
        self._hand(target, values["from"], vote, [])

    def do_prevote(self, target: str, *pairs: str) -> None:
        values = dict(pair.split("=") for pair in pairs)
        message = PreVote(Term(int(values["term"])), entry(values["last"]))
        self._hand(target, values["from"], message, [])

    def do_replies(self) -> str:
        sent = self.group.sent or []
        new, self.seen = sent[self.seen :], len(sent)
        return (
            "\n".join(f"{source} → {target} {shown(m)}" for source, target, m in new) or "nothing"
        )

    def _hand(self, target: str, source: str, message: Message, entries: list[Entry]) -> None:
        self.do_replies()
        self.group.schedule(0, "message", target, (NodeId(source), message, entries))
        self.group.run(8)

    def _add(self, name: str) -> None:
        node = self.group.add(name)
        self.group.crash(name)
        term, vote = self.terms.get(name, (0, None))
        terms = self.logs.get(name, [])
        node.disk.hard_state = HardState(Term(max([term, *terms])), NodeId(vote) if vote else None)
        node.disk.entries = [Entry(Term(of), f"t{of}-{index}") for index, of in enumerate(terms)]
        for index in range(len(terms)):
            node.checker.stored(node.disk, index)
        node.disk.durable = len(terms) - 1
        self.group.history.clear()
        self.group.start(name)
        self.group.history.clear()


def membership(names: tuple[str, ...]) -> Membership:
    """``n0 n1w n3b +n2``: a voter, a witness, one without bodies, a learner."""
    learners = frozenset(NodeId(name[1:]) for name in names if name.startswith("+"))
    voters = frozenset(NodeId(name.rstrip("wb")) for name in names if not name.startswith("+"))
    witnesses = frozenset(NodeId(name[:-1]) for name in names if name.endswith(("w", "b")))
    bodiless = frozenset(NodeId(name[:-1]) for name in names if name.endswith("b"))
    return Membership(voters, learners, witnesses, bodiless)


def entry(text: str) -> EntryId:
    term, index = text.split("/")
    return EntryId(Term(int(term)), Index(int(index)))


def shown(message: Message) -> str:
    """A message in one line."""
    parts = []
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "memberships" and not value:
            continue
        if name == "tail" and value is not None:
            runs = " ".join(f"{run.term}x{run.count}" for run in value.runs)
            value = f"{value.before}+[{runs}]"
        elif name == "runs":
            value = "[" + " ".join(f"{run.term}x{run.count}" for run in value) + "]"
        elif name == "reason":
            value = value.value if value is not None else "-"
        parts.append(f"{name}={value}")
    return f"{type(message).__name__} {' '.join(parts)}"


def replay(path: Path) -> tuple[str, str]:
    """The file as it is, and as it would be with what is said now."""
    text = path.read_text()
    script = Script()
    paragraphs = []
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.split("\n----")[0].split("\n")
        commands = [line for line in lines if line and not line.startswith("#")]
        if not commands:
            paragraphs.append("\n".join(lines))
            continue
        said = [script.say(command) for command in commands]
        told = [output for output in said if output != "ok"] or ["ok"]
        paragraphs.append("\n".join([*lines, "----", *told]))
    return text, "\n\n".join(paragraphs) + "\n"
