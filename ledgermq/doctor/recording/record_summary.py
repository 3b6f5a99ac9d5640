"""Summary of a record: what stands out, first; what could not be had; figures; where time went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from ledgermq.doctor.finding import Diagnosis, Weight
from ledgermq.doctor.recording.far_nodes import FarNode
from ledgermq.doctor.recording.node_processes import NodeProcess
from ledgermq.doctor.recording.record_folder import Missed
from ledgermq.doctor.recording.stack_samples import ThreadStacks
from ledgermq.doctor.recording.timed_samples import Gathered, Line
from ledgermq.ipc.cursor_page import Role
from ledgermq.model.config.amounts import size_text

SUMMARY, README = "summary.txt", "README"
SILENT_MS = 2_000
"""A process beats at least once a second."""

BUSY_PERCENT = 90.0
STACKS_TOLD = 3
FRAMES_TOLD = 4
_ODD_STATES = {
    "stopped": "was stopped by a signal (SIGSTOP, a debugger)",
    "disk-sleep": "waited for a disk in the kernel, where no signal reaches it",
    "zombie": "had ended, and its parent had not noticed",
    "tracing-stop": "was stopped by a debugger",
}
_MAIN = "MainThread"


@dataclass(slots=True)
class RecordTold:
    """All that a summary is made of.

    Attributes:
        began: as in the archive's name.
        wanted_s: seconds that were asked for.
        lasted_s: those that it lasted.
        interrupted: what ended it before its time; empty when nothing did.
        why_silent: why the node's supervisor did not answer; empty when it did.
        findings: of the examination, as far as it came.
        others: the group's other members, by the settings.
    """

    node: str
    version: str
    began: str
    wanted_s: float
    lasted_s: float = 0.0
    interrupted: str = ""
    why_silent: str = ""
    findings: list[Diagnosis] = field(default_factory=list)
    gathered: Gathered = field(default_factory=Gathered)
    stacks: Mapping[NodeProcess, Sequence[ThreadStacks]] = field(default_factory=dict)
    far: Sequence[FarNode] = ()
    others: Sequence[str] = ()


def summary(told: RecordTold, missed: Sequence[Missed]) -> Iterator[str]:
    """Lines of ``summary.txt``."""
    yield f"Record of {told.node}, begun {told.began}"
    ended = f", ended early: {told.interrupted}" if told.interrupted else ""
    yield f"{told.lasted_s:.0f} s of {told.wanted_s:.0f} s{ended}; recorded by {told.version}"
    yield ""
    yield "WHAT STANDS OUT"
    yield from list(_standing_out(told)) or ["  nothing: no check fails, no process was silent"]
    yield ""
    yield "NOT IN THIS RECORD"
    yield from [f"  {one.what}: {one.why}" for one in missed] or ["  nothing is missing"]
    yield ""
    yield "NODES"
    yield from _nodes(told)
    yield ""
    yield "FIGURES OF THIS NODE, from the first sample to the last"
    yield from _figures(told.gathered)
    yield ""
    yield "WHERE MAIN THREADS WERE, innermost function first (all: stacks/)"
    yield from list(_stacks(told.stacks)) or ["  not known"]


def readme(told: RecordTold, about: Mapping[str, str]) -> Iterator[str]:
    """Lines of ``README``: what each file is."""
    yield f"Record of {told.node}, begun {told.began} (UTC), made by `ledgermq doctor --record`."
    yield ""
    yield "Begin with summary.txt. Times in samples (`at`) are seconds since 1970; a file that ends"
    yield "in .jsonl has one JSON document a line."
    yield ""
    yield "In it: settings, paths, names of topics, groups, members and users as far as the log has"
    yield "them (topics: store.txt, too), addresses of clients that the log names. Not in it:"
    yield "messages, keys, tokens, secrets, tables of the broker, other programs, addresses of this"
    yield "host's interfaces."
    yield ""
    for name, text in sorted(about.items()):
        yield f"{name}"
        yield f"    {text}"


def _standing_out(told: RecordTold) -> Iterator[str]:
    if told.why_silent:
        yield f"  the node does not run, or does not answer: {told.why_silent}"
    yield from _processes_standing_out(told)
    for weight in (Weight.FAIL, Weight.WARN):
        for one in told.findings:
            if one.verdict is weight:
                yield f"  {weight.name} {one.check}: {one.measured}" + (
                    f" -> {one.change}" if one.change else ""
                )
    for node in told.far:
        if node.failures:
            asked = node.answers + node.failures
            yield (
                f"  the node at {node.address} did not answer {node.failures} of {asked} times:"
                f" {node.why}"
            )


def _processes_standing_out(told: RecordTold) -> Iterator[str]:
    gathered = told.gathered
    for process, states in gathered.states.items():
        for state, text in _ODD_STATES.items():
            if states[state]:
                yield (
                    f"  {process.role.title} (pid {process.pid}) {text}:"
                    f" in {states[state]} of {states.total()} samples"
                )
    roles = {process.role for process in gathered.states}
    if not told.why_silent or roles:
        missing = [role.title for role in Role if role <= Role.BROKER and role not in roles]
        if missing and gathered.count:
            yield f"  there was no process: {', '.join(missing)}"
    for role in roles:
        pids = [process.pid for process in gathered.states if process.role is role]
        if len(pids) > 1:
            yield f"  {role.title} was started again meanwhile: pids {', '.join(map(str, pids))}"
        silence = gathered.beat_age_max_ms.get(role.title, 0)
        if silence >= SILENT_MS and role is not Role.SUPERVISOR:
            yield f"  {role.title} gave no sign of life for {silence / 1_000:.1f} s"
    for process in gathered.states:
        percent = _cpu_percent(gathered, process)
        if percent is not None and percent >= BUSY_PERCENT:
            yield f"  {process.role.title} took {percent:.0f} % of a processor"


def _nodes(told: RecordTold) -> Iterator[str]:
    page = told.gathered.last_page
    if page is not None:
        raft = cast("Mapping[str, object]", page["raft"])
        yield f"  this one: {raft['role']} in term {raft['term']}, leader {page['leader'] or '?'}"
    for node in told.far:
        raft = cast("Mapping[str, object]", node.last.get("raft", {}))
        state = f"{raft['role']} in term {raft['term']}" if raft else f"silent: {node.why}"
        yield f"  {node.name or '?'} at {node.address}: {state}"
    if told.others and not told.far:
        yield f"  not asked: {', '.join(told.others)} (give their addresses with --address)"


def _figures(gathered: Gathered) -> Iterator[str]:
    first, last = gathered.first_page, gathered.last_page
    yield f"  samples: {gathered.count}"
    if first is None or last is None:
        yield "  no cursor page was read"
        return
    seconds = cast("float", last["at"]) - cast("float", first["at"])
    cursors = cast("Mapping[str, object]", last["cursors"])
    if seconds > 0:
        for name, before, after in (
            ("bytes written", _written(first), _written(last)),
            (
                "dispatched messages",
                _number(first, "dispatched_messages"),
                _number(last, "dispatched_messages"),
            ),
        ):
            yield f"  {name} a second: {(after - before) / seconds:,.1f}"
    for name in ("not_durable_bytes", "not_committed_bytes", "not_dispatched_bytes"):
        yield f"  {name} at the end: {cursors[name]}"
    yield f"  disk: {last['space']}, {size_text(cast('int', last['disk_free']))} free"
    lock = cast("Mapping[str, int]", last["put_lock"])
    yield f"  put lock: taken {lock['taken']}, slow {lock['slow']}, recovered {lock['recovered']}"
    for process in gathered.states:
        percent = _cpu_percent(gathered, process)
        rss = size_text(cast("int", gathered.last[process]["rss"]))
        cpu = "-" if percent is None else f"{percent:.1f} %"
        yield f"  {process.role.title:<12} pid {process.pid:<8} processor {cpu:>8}  rss {rss}"
    yield from _counted(first, last)


def _counted(first: Line, last: Line) -> Iterator[str]:
    """Counters that changed meanwhile."""
    before = cast("Mapping[str, Mapping[str, int]]", first["counters"])
    after = cast("Mapping[str, Mapping[str, int]]", last["counters"])
    for role, counters in after.items():
        for name, value in counters.items():
            if value != before.get(role, {}).get(name, 0):
                yield f"  {role}.{name}: {before.get(role, {}).get(name, 0):,} -> {value:,}"


def _stacks(stacks: Mapping[NodeProcess, Sequence[ThreadStacks]]) -> Iterator[str]:
    for process, threads in stacks.items():
        for thread in threads:
            if _MAIN in thread.thread and thread.total:
                yield f"  {process.title}: {thread.total} samples"
                for stack, count in thread.stacks[:STACKS_TOLD]:
                    places = " < ".join(stack[:FRAMES_TOLD])
                    yield f"    {100 * count / thread.total:5.1f} %  {places}"


def _cpu_percent(gathered: Gathered, process: NodeProcess) -> float | None:
    first, last = gathered.first[process], gathered.last[process]
    seconds = cast("float", last["at"]) - cast("float", first["at"])
    if seconds <= 0:
        return None
    used = sum(
        cast("float", last[name]) - cast("float", first[name]) for name in ("user_s", "system_s")
    )
    return 100 * used / seconds


def _written(page: Line) -> int:
    cursors = cast("Mapping[str, Mapping[str, int]]", page["cursors"])
    return cursors["written"]["position"]


def _number(page: Line, name: str) -> int:
    return cast("Mapping[str, int]", page["cursors"])[name]
