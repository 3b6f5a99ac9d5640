"""Recorder: what is looked at for a record, and when; whatever fails costs that part alone.

Samples begin at once, in threads. What is looked at once (status, examination, logs, files) comes
meanwhile, the quickest first; then the rest of the time is waited for. An interruption goes to the
end from wherever it comes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NamedTuple, cast

import psutil

import ledgermq
from ledgermq.doctor.examination import examine
from ledgermq.doctor.finding import Diagnosis, Weight
from ledgermq.doctor.recording.far_nodes import FarNode, FarNodes
from ledgermq.doctor.recording.node_processes import (
    ABOUT_CONNECTIONS,
    ABOUT_HOST,
    ABOUT_LIMITS,
    NodeProcess,
    PageWatch,
    connection_counts,
    host_facts,
    journal_of,
    kernel_log,
    limits_of,
    log_file_of,
    processes_now,
)
from ledgermq.doctor.recording.record_folder import Missed, RecordFolder
from ledgermq.doctor.recording.stack_samples import ThreadStacks
from ledgermq.doctor.recording.timed_samples import Gathered, Line, TimedSamples
from ledgermq.doctor.settings_checks import read_checked
from ledgermq.ipc.cursor_page import Role
from ledgermq.model.config.amounts import size_text
from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_file import write_settings
from ledgermq.model.errors import LedgerError
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings.reload import published_path
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.store.files.store_paths import StorePaths

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


SECONDS_MAX = 600
_FIRST = (README, SUMMARY)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

ABOUT_STORE = (
    "files of the store: bytes, bytes on disk, last change, mode, name; a folder with more than"
    " 200 files is summed up"
)

ALONE_MAX = 200
LINES_MAX = 50_000

LISTING_MAX_S = 20.0
"""A store on a disk that is ill, or with millions of files, is not listed to its end."""

QUEUES = "consumequeue"
_BLOCK = 512


class RecordWanted(NamedTuple):
    """What is to be recorded.

    Attributes:
        config: the settings file.
        seconds: for so long, 1 to ``SECONDS_MAX``.
        output: folder of the archive.
        addresses: of nodes that are asked over the network, this one or others.
        unit: systemd's unit of the node.
        parts: of the examination.
    """

    config: Path
    seconds: float
    output: Path
    addresses: Sequence[str]
    unit: str
    parts: tuple[str, ...]


class Recorded(NamedTuple):
    """What came of it.

    Attributes:
        archive: where it is.
        summary: its ``summary.txt``.
        interrupted: what ended it before its time; empty when nothing did.
    """

    archive: Path
    summary: str
    interrupted: str


class _InterruptedError(BaseException):
    """A signal asked for the end; nobody between takes it for a failure."""


def record(asked: RecordWanted) -> Recorded:
    """Look at a node for some time, whether it runs or not, and make an archive of what was seen.

    SIGINT, SIGTERM and SIGHUP end it early; it is called in the main thread.

    Raises:
        StorageError: the archive cannot be written.
    """
    began = datetime.now(UTC)
    settings, about_file = read_checked(asked.config)
    node = "a-node"
    if settings is not None:
        node = f"{settings.node.broker_name}-{settings.node.self_id}"
    stamp = began.strftime("%Y%m%dT%H%M%SZ")
    told = RecordTold(
        node=node,
        version=f"ledgermq {ledgermq.__version__}",
        wanted_s=asked.seconds,
        began=began.isoformat(timespec="seconds"),
        findings=[about_file],
    )
    signals = _Signals()
    with signals.taken(), RecordFolder(asked.output, f"ledgermq-{node}-{stamp}") as folder:
        _Recorder(asked, settings, folder, told, signals).run()
        folder.note_what_does_not_fit(_FIRST)
        text = "\n".join(summary(told, folder.missed)) + "\n"
        folder.put(SUMMARY, "the most important things first", text)
        folder.place(README, "what each file is")
        folder.put(README, "what each file is", "\n".join(readme(told, folder.about)) + "\n")
        return Recorded(folder.pack(_FIRST), text, told.interrupted)


class _Recorder:
    """One record under way."""

    def __init__(
        self,
        asked: RecordWanted,
        settings: Settings | None,
        folder: RecordFolder,
        told: RecordTold,
        signals: _Signals,
    ) -> None:
        self._asked = asked
        self._settings = settings
        self._folder = folder
        self._told = told
        self._signals = signals
        self._course: list[str] = []

    def run(self) -> None:
        """All of it; returns when nothing is under way any more."""
        started = time.monotonic()
        far = FarNodes(self._folder, self._asked.addresses)
        watch = None
        samples = None
        if self._settings is None:
            self._folder.miss("samples, stacks, store", "the settings cannot be used")
        else:
            watch = PageWatch(RuntimePaths(self._settings.listen.runtime_dir).cursors)
            samples = TimedSamples(self._folder, self._settings, watch)
        try:
            with self._signals.ending_it():
                self._look_once()
                self._signals.wait(started + self._asked.seconds - time.monotonic())
        except _InterruptedError as interruption:
            self._told.interrupted = str(interruption)
        self._told.lasted_s = time.monotonic() - started
        if samples is not None:
            stacks = samples.finish()
            self._told.gathered = samples.gathered
            self._told.stacks = stacks.finish()
        self._told.far = far.finish()
        self._look_last()
        if watch is not None:
            watch.close()

    def _look_once(self) -> None:
        """What is looked at once, the quickest first; an interruption ends it anywhere."""
        asked = self._asked
        if self._settings is not None:
            self._look_at_node(self._settings)
        about = "the kernel's log of a day: memory, disks, clocks, programs that died"
        self._keep("kernel.txt", about, kernel_log)
        self._try("the log", self._log)
        self._try("findings.json", lambda: self._findings(examine(asked.config, asked.parts)))
        if self._settings is not None:
            root = StorePaths.of(self._settings).root
            self._keep("store.txt", ABOUT_STORE, lambda: "\n".join(listing(root)) + "\n")

    def _look_at_node(self, settings: Settings) -> None:
        paths = RuntimePaths(settings.listen.runtime_dir)
        own = settings.node.self_id
        members = (peer.partition("-")[0] for peer in settings.node.peers)
        self._told.others = [member for member in members if member != own]
        about = "settings of the file; of secrets they have the paths alone"
        self._keep("settings.toml", about, lambda: write_settings(settings))
        places = (settings.store.path_root_dir, settings.listen.runtime_dir)
        self._keep("host.json", ABOUT_HOST, lambda: host_facts(places))
        about = "the cursor page itself, as it was at first (ipc/cursor_page.py)"
        self._keep("cursors", about, paths.cursors.read_bytes)
        # Each of its own: samples use theirs in another thread.
        watch = PageWatch(paths.cursors)
        processes = processes_now(watch, settings)
        watch.close()
        self._keep("limits.txt", ABOUT_LIMITS, lambda: limits_of(processes))
        self._keep("connections.json", ABOUT_CONNECTIONS, lambda: connection_counts(processes))
        self._keep(
            "settings-in-force.toml",
            "settings of the running node",
            lambda: write_settings(load_settings(published_path(settings.listen.runtime_dir))),
        )
        self._told.why_silent = self._status("status.json", "at first")
        about = "what the raft process says of the group (`ledgermq raft status`)"
        self._keep("raft.json", about, lambda: control.ask(paths.raft_control, "status"))

    def _look_last(self) -> None:
        """Also of a record that was interrupted."""
        if self._settings is not None:
            self._status("status-at-end.json", "at last")
        self._folder.put("course.txt", "what was looked at when", "\n".join(self._course) + "\n")

    def _status(self, name: str, when: str) -> str:
        """Write the node's status; why there is none, else empty."""
        assert self._settings is not None
        path = RuntimePaths(self._settings.listen.runtime_dir).control
        about = f"`ledgermq status --json`, {when}"
        return self._keep(name, about, lambda: control.ask(path, "status"))

    def _log(self) -> None:
        """The journal of the unit; where there is none, the file to which the node's log goes."""
        about = "the end of the node's log"
        try:
            text = journal_of(self._asked.unit)
        except LedgerError as error:
            why_not = error.message
        else:
            if text:
                self._folder.put("journal.txt", f"{about}: journal of {self._asked.unit}", text)
                return
            why_not = f"the journal has nothing of {self._asked.unit}"
        supervisor = self._supervisor()
        if supervisor is None:
            self._folder.miss("the log", f"{why_not}; and no node runs whose log file is known")
            return
        try:
            path, text = log_file_of(supervisor)
        except LedgerError as error:
            self._folder.miss("the log", f"{why_not}; {error}")
            return
        self._folder.put("log.txt", f"{about}: {path}", text)

    def _supervisor(self) -> int | None:
        if self._settings is None:
            return None
        watch = PageWatch(RuntimePaths(self._settings.listen.runtime_dir).cursors)
        found = processes_now(watch, self._settings)
        watch.close()
        return next((one.pid for one in found if one.role is Role.SUPERVISOR), None)

    def _findings(self, findings: Iterator[Diagnosis]) -> None:
        """Each as it comes: an interruption keeps those that there are."""
        found = self._told.findings
        found.clear()
        try:
            found.extend(findings)
        finally:
            self._folder.put(
                "findings.json",
                "`ledgermq doctor --json`: all findings",
                [{**one._asdict(), "verdict": one.verdict.name} for one in found],
            )

    def _keep(self, name: str, about: str, look: Callable[[], object]) -> str:
        """Put what is found into a file; why it could not be had, which is noted, else empty."""
        return self._try(name, lambda: self._folder.put(name, about, look()))

    def _try(self, what: str, look: Callable[[], object]) -> str:
        """Look at one thing; why it could not be had, which is noted, else empty."""
        began = time.time()
        why = ""
        try:
            look()
        except (LedgerError, OSError, psutil.Error, subprocess.SubprocessError) as error:
            why = error.message if isinstance(error, LedgerError) else str(error)
        except _InterruptedError:
            self._folder.miss(what, "interrupted before its end")
            raise
        except Exception as error:  # a fault of ours in one part must not cost the others
            why = f"failed: {error!r}"
        if why:
            self._folder.miss(what, why)
        at = datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds")
        self._course.append(f"{at} {what}: {why or 'done'} in {time.time() - began:.3f} s")
        return why


class _Signals:
    """Signals that end a record: the first one while it is looked, none while it is packed.

    Within the block alone; outside of it the process has the actions that it had.
    """

    def __init__(self) -> None:
        self._came = threading.Event()
        self._is_armed = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take them from whoever has them."""
        before = [(one, signal.signal(one, self._on_signal)) for one in _ENDING]
        try:
            yield
        finally:
            for one, action in before:
                signal.signal(one, action)

    @contextmanager
    def ending_it(self) -> Iterator[None]:
        """Within it the first one is raised, as ``_InterruptedError``."""
        self._is_armed = True
        try:
            yield
        finally:
            self._is_armed = False

    def wait(self, seconds: float) -> None:
        """Sleep, unless one came."""
        self._came.wait(max(0.0, seconds))

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._came.set()
        if self._is_armed:
            self._is_armed = False
            raise _InterruptedError(signal.Signals(number).name)


def listing(root: Path) -> Iterator[str]:
    """Lines about what is below ``root``; the last one says where it ended too early."""
    deadline = time.monotonic() + LISTING_MAX_S
    lines = 0
    for folder, folders, files in os.walk(root, onerror=None):
        # The queues last: they are many, and what they hold follows from the log.
        folders.sort(key=lambda name: (name == QUEUES, name))
        for line in _folder(Path(folder), root, sorted(files)):
            yield line
            lines += 1
        if lines >= LINES_MAX or time.monotonic() > deadline:
            yield f"[ended here: after {lines} lines, or {LISTING_MAX_S:.0f} s]"
            return


def _folder(folder: Path, root: Path, files: list[str]) -> Iterator[str]:
    name = folder.relative_to(root)
    if len(files) <= ALONE_MAX:
        for file in files:
            found = _stat(folder / file)
            if found is not None:
                yield _line(found, str(name / file))
        return
    all_of_them = [found for file in files if (found := _stat(folder / file)) is not None]
    size = sum(found.st_size for found in all_of_them)
    on_disk = sum(found.st_blocks for found in all_of_them) * _BLOCK
    yield f"{size:>15} {on_disk:>15} {'':20} {'':10} {name}/ ({len(all_of_them)} files)"
    for file in (*files[:2], *files[-2:]):
        found = _stat(folder / file)
        if found is not None:
            yield _line(found, str(name / file))


def _line(found: os.stat_result, name: str) -> str:
    changed = datetime.fromtimestamp(found.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"{found.st_size:>15} {found.st_blocks * _BLOCK:>15} {changed} {found.st_mode:>10o} {name}"
    )


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        # Deleted meanwhile: a log file that retention has taken.
        return None
