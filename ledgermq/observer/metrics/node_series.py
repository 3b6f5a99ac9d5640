"""Values of the node's series: from the page, the control sockets, the files, and the kernel.

The raft process says which entry a member is known to hold; where the next one stands, and when it
was stored, is read here, so that it costs the raft process nothing.
"""

from __future__ import annotations

import platform
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import ledgermq
from ledgermq.conversion.last_backup import STREAM_NAME, read_last_backup
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.dledger_index import FILE_SIZE
from ledgermq.formats.kernels import kernel
from ledgermq.formats.records.message import decode_message
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import PORTS, CursorPage, PublishedRole, Role
from ledgermq.ipc.page_slots import HeldBy, SpaceState
from ledgermq.ipc.time_histogram import TimeKind, read_times
from ledgermq.members.reports import read_report
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.model.ids import Index, Position
from ledgermq.observer.metrics.counter_help import COUNTER_HELP, SUPERVISOR_HELP
from ledgermq.observer.metrics.samples import Samples
from ledgermq.observer.metrics.series import counter_name
from ledgermq.process import control
from ledgermq.process.node_status import Health, cursor_status, given_out, roles_in_use
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.store.files.disk_space import measure
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_files import EntryFiles, file_size_in
from ledgermq.store.recovery.recovery import COMMIT_LOG_FILE_SIZE


class MemberLag(NamedTuple):
    """What a member is not known to hold: bytes, and the age of the oldest entry in seconds."""

    bytes: int
    seconds: float


NO_LAG = MemberLag(0, 0.0)


def member_lag(settings: Settings, match: Index, last: Index, end: Position) -> MemberLag:
    """What a member is not known to hold that holds the leader's log up to entry ``match``.

    Args:
        last: the leader's last entry.
        end: the leader's log behind it.

    Raises:
        CorruptLogError, StorageError: the files do not have these entries any more, or cannot be
            read: the member is to get whole files.
    """
    if match >= last:
        return NO_LAG
    with _opened(settings) as files:
        begin = files.end_of(match).position
        entry = files.span(Index(match + 1), Index(match + 1), size_max=1)
    stored_ms = decode_message(memoryview(entry.data), HEADER_SIZE, check_crc=False).store_timestamp
    return MemberLag(max(0, end - begin), max(0.0, time.time() - stored_ms / 1_000))


def index_held(settings: Settings, position: Position, last: Index) -> Index | None:
    """The last entry of a copy that has the log up to ``position``; None: the log begins later.

    Args:
        last: the log's last entry, which begins behind ``position``.

    Raises:
        CorruptLogError, StorageError: the files are damaged, or cannot be read.
    """
    with _opened(settings) as files:
        if position < files.first_position():
            return None
        begin = files.entry_before(position, last)
        index = files.index_at(begin)
    return Index(index - 1) if begin == position else index


@contextmanager
def _opened(settings: Settings) -> Iterator[EntryFiles]:
    paths = StorePaths.of(settings)
    assert paths.index is not None, "members of a log without terms"
    configured = settings.store.mapped_file_size_commit_log
    # Opened anew: files of these names may have been cut, or be those of another log by now.
    files = EntryFiles(
        paths.data,
        paths.index,
        file_size=configured or file_size_in(paths.data, COMMIT_LOG_FILE_SIZE),
        index_file_size=file_size_in(paths.index, FILE_SIZE),
    )
    try:
        yield files
    finally:
        files.forget()


_SEQUENCE, _CONTEXT_0, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18
FILE_SIZE_MAX = 1024 * 1024


def certificates_of(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Certificates of the node, by the settings that name them."""
    for section in ("remoting", "http"):
        path = getattr(settings, section).tls_certificate_file
        if path is not None:
            yield f"{section}.tls_certificate_file", path


def key_files_of(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Files whose age matters, by the settings that name them."""
    yield from certificates_of(settings)
    for key, path in (
        ("remoting.tls_key_file", settings.remoting.tls_key_file),
        ("http.tls_key_file", settings.http.tls_key_file),
        ("http.tokens_file", settings.http.tokens_file),
        ("listen.curve_secret_file", settings.listen.curve_secret_file),
        ("raft.keys_dir", settings.raft.keys_dir),
    ):
        if path is not None:
            yield key, path


def expiry_s(path: Path) -> float | None:
    """When the first certificate of a PEM file ends, since the epoch; None if there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(FILE_SIZE_MAX).decode("ascii", "replace")
        begin = text.index("-----BEGIN CERTIFICATE-----")
        end = text.index("-----END CERTIFICATE-----", begin) + len("-----END CERTIFICATE-----")
        return _end_of_validity(ssl.PEM_cert_to_DER_cert(text[begin:end]))
    except (OSError, ValueError, IndexError):
        return None


def _end_of_validity(der: bytes) -> float:
    """``notAfter`` of RFC 5280, section 4.1: certificate, its body, version, serial, signature,
    issuer, validity.

    Raises:
        ValueError, IndexError: it is no certificate.
    """
    _, at, _ = _element(der, 0)
    _, at, _ = _element(der, at)
    tag, _, _ = _element(der, at)
    fields_before = 4 if tag == _CONTEXT_0 else 3
    for _ in range(fields_before):
        _, _, at = _element(der, at)
    tag, at, _ = _element(der, at)
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    _, _, at = _element(der, at)
    tag, begin, end = _element(der, at)
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:
        # Two digits of the year: 50 and above are of the last century.
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag of the element at ``at``, where its content begins, and where it ends."""
    tag, size = der[at], der[at + 1]
    at += 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(der[at : at + count], "big")
        at += count
    if at + size > len(der):
        raise ValueError("an element goes on behind its end")
    return tag, at, at + size


ASK_S = 1.0
"""A process that hangs does not hold a scrape up for longer: its series are left out."""

PROPORTIONAL_EVERY_NS = 60_000_000_000
PROCESSES_MAX = 64

_CURSORS = ("written", "durable", "committed")


class NodeSeries:
    """Series of one node; between scrapes it keeps only what it is, and what is dear to count."""

    def __init__(self, page: CursorPage, settings: Settings) -> None:
        self._page = page
        self._settings = settings
        self._paths = RuntimePaths(settings.listen.runtime_dir)
        self._proportional: dict[int, tuple[int, int]] = {}
        node = settings.node
        self.rocketmq = (node.broker_cluster_name, "broker", node.broker_name)

    def put(self, samples: Samples, health: Health | None) -> None:
        """Put all that is known now; ``health`` is None while the supervisor does not answer."""
        now_ns = time.monotonic_ns()
        self._names(samples)
        self._health(samples, health)
        self._raft(samples, now_ns)
        if health is not None and health["role"] == PublishedRole.LEADER.name.lower():
            self._members(samples)
        self._log(samples, now_ns)
        self._disk(samples)
        self._counters(samples)
        for role in roles_in_use(self._page):
            self._process(samples, role, now_ns)
        self._keys(samples)
        self._backup(samples)

    def _names(self, samples: Samples) -> None:
        node = self._settings.node
        samples.put("ledgermq_build_info", 1, ledgermq.__version__, platform.python_version())
        samples.put("ledgermq_kernels_compiled", kernel.compiled)
        samples.put(
            "ledgermq_node_info",
            1,
            node.broker_cluster_name,
            node.broker_name,
            node.group,
            node.self_id,
        )
        samples.put("ledgermq_start_time_seconds", self._page.started_ms / 1_000)

    def _health(self, samples: Samples, health: Health | None) -> None:
        samples.put("ledgermq_ready", health is not None and health["ready"])
        samples.put("ledgermq_leads", health is not None and health["leads"])
        if health is None:
            samples.put("ledgermq_not_ready_reason", 1, "supervisor_hangs")
            return
        for code in {reason["code"] for reason in health["reasons"]}:
            samples.put("ledgermq_not_ready_reason", 1, code)

    def _raft(self, samples: Samples, now_ns: int) -> None:
        grant, proof = self._page.read_grant(), self._page.read_proof()
        for role in PublishedRole:
            samples.put("ledgermq_raft_role", role is grant.role, role.name.lower())
        samples.put("ledgermq_raft_term", grant.term)
        if proof.majority_ns:
            age_s = max(0, now_ns - proof.majority_ns) / 1e9
            samples.put("ledgermq_raft_majority_age_seconds", age_s)
        samples.put("ledgermq_raft_disk_sick", proof.disk_is_sick)
        samples.put("ledgermq_raft_lacks_entries", proof.lacks_entries)

    def _members(self, samples: Samples) -> None:
        try:
            status: Any = control.ask(self._paths.raft_control, "status", timeout_s=ASK_S)
        except LedgerError:
            # It hangs or is being started again: health says so.
            return
        last, written = Index(status["last"]["index"]), self._page.read_written()
        for peer in status["peers"]:
            samples.put("ledgermq_member_silent_seconds", peer["silent_ms"] / 1_000, peer["node"])
            if peer["node"] in status["bodiless"]:
                # It is told of what others hold, now and then: there is nothing that it lacks.
                continue
            samples.put("ledgermq_member_behind_entries", peer["behind"], peer["node"])
            try:
                lag = member_lag(self._settings, Index(peer["match"]), last, written.position)
                samples.put("ledgermq_member_behind_bytes", lag.bytes, peer["node"])
                samples.put("ledgermq_member_behind_seconds", lag.seconds, peer["node"])
            except LedgerError:
                # What it lacks is not there any more: it gets whole files.
                pass
            samples.put("ledgermq_member_in_flight_bytes", peer["in_flight_bytes"], peer["node"])

    def _log(self, samples: Samples, now_ns: int) -> None:
        page = self._page
        cursors: Any = cursor_status(page, now_ns)
        for name in _CURSORS:
            samples.put("ledgermq_log_position_bytes", cursors[name]["position"], name)
            samples.put("ledgermq_log_index", cursors[name]["index"], name)
        samples.put("ledgermq_log_position_bytes", cursors["dispatched"], "dispatched")
        samples.put("ledgermq_log_begin_bytes", page.read_log_begin().position)
        for name in ("not_durable", "not_committed", "not_dispatched"):
            samples.put(f"ledgermq_log_{name}_bytes", max(0, cursors[f"{name}_bytes"]))
        waits = cursors["not_durable_bytes"] > 0
        age_ms = cursors["last_flush_age_ms"] or 0
        samples.put("ledgermq_log_not_durable_seconds", age_ms / 1_000 if waits else 0)
        samples.put(
            "rocketmq_storage_dispatch_behind_bytes",
            max(0, cursors["not_dispatched_bytes"]),
            *self.rocketmq,
        )
        samples.put(
            "rocketmq_storage_flush_behind_bytes",
            max(0, cursors["not_durable_bytes"]),
            *self.rocketmq,
        )
        _, held_by = page.read_released()
        for by in HeldBy:
            samples.put("ledgermq_retention_held", by is held_by, by.name.lower())
        for name, kind in (
            ("ledgermq_acknowledgement_seconds", TimeKind.ACKNOWLEDGEMENT),
            ("ledgermq_sync_seconds", TimeKind.SYNC),
            ("ledgermq_put_lock_hold_seconds", TimeKind.PUT_LOCK),
        ):
            samples.put_times(name, read_times(page, kind))
        lock = page.read_put_lock()
        samples.put("ledgermq_put_lock_taken_total", lock.taken)
        samples.put("ledgermq_put_lock_slow_total", lock.slow)
        samples.put("ledgermq_put_lock_recovered_total", lock.recovered)
        held_s = max(0, now_ns - lock.since_ns) / 1e9 if lock.holder else 0
        samples.put("ledgermq_put_lock_held_seconds", held_s)

    def _disk(self, samples: Samples) -> None:
        disk = measure(self._settings.store.path_root_dir)
        samples.put("ledgermq_disk_free_bytes", disk.free)
        samples.put("ledgermq_disk_size_bytes", disk.total)
        is_full = self._page.read_space().state is not SpaceState.ROOMY
        samples.put("ledgermq_disk_full", is_full)
        samples.put("ledgermq_dispatch_waits_for_space", self._page.read_queue_begin().waits)
        damages = read_report(self._paths.damage)
        lost = sum(bool(damage["unrepairable"]) for damage in damages)
        samples.put("ledgermq_damaged_places", len(damages) - lost, "yes")
        samples.put("ledgermq_damaged_places", lost, "no")

    def _counters(self, samples: Samples) -> None:
        page = self._page
        for (name, _), value in zip(
            SUPERVISOR_HELP, page.read_counters(Role.SUPERVISOR), strict=False
        ):
            samples.put(f"ledgermq_supervisor_{name}_total", value)
        for role in roles_in_use(page)[1:]:
            kind = Role.BROKER if role in PORTS else role
            labels = (role.title,) if kind is Role.BROKER else ()
            values = page.read_counters(role)
            for counter in COUNTER_HELP[kind]:
                samples.put(counter_name(kind, counter), values[counter], *labels)
        for name, counter in (
            ("rocketmq_send_to_dlq_messages_total", BrokerCounter.MESSAGES_DEAD),
            ("rocketmq_commit_messages_total", BrokerCounter.TRANSACTIONS_COMMITTED),
            ("rocketmq_rollback_messages_total", BrokerCounter.TRANSACTIONS_ROLLED_BACK),
            ("rocketmq_half_messages", BrokerCounter.HALF_MESSAGES_WAITING),
        ):
            samples.put(name, given_out(page, counter), *self.rocketmq)

    def _process(self, samples: Samples, role: Role, now_ns: int) -> None:
        slot, name = self._page.read_process(role), role.title
        pid = self._page.supervisor_pid if role is Role.SUPERVISOR else slot.pid
        samples.put("ledgermq_process_starts_total", slot.generation or 1, name)
        samples.put("ledgermq_process_beat_age_seconds", max(0, now_ns - slot.beat_ns) / 1e9, name)
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                resident, cpu = process.memory_info().rss, process.cpu_times()
                files, threads = process.num_fds(), process.num_threads()
                proportional = self._proportional_bytes(process, now_ns)
        except psutil.Error:
            samples.put("ledgermq_process_up", 0, name)
            return
        samples.put("ledgermq_process_up", 1, name)
        samples.put("ledgermq_process_cpu_seconds_total", cpu.user + cpu.system, name)
        samples.put("ledgermq_process_resident_bytes", resident, name)
        samples.put("ledgermq_process_proportional_bytes", proportional, name)
        samples.put("ledgermq_process_open_files", files, name)
        samples.put("ledgermq_process_threads", threads, name)

    def _proportional_bytes(self, process: psutil.Process, now_ns: int) -> int:
        """Its share of the memory: the kernel goes through all pages of all maps for it."""
        counted_ns, size = self._proportional.get(process.pid, (0, 0))
        if not counted_ns or now_ns - counted_ns >= PROPORTIONAL_EVERY_NS:
            size = process.memory_full_info().pss
            if len(self._proportional) >= PROCESSES_MAX:
                # Of processes that are no more.
                self._proportional.clear()
            self._proportional[process.pid] = (now_ns, size)
        return size

    def _keys(self, samples: Samples) -> None:
        for setting, path in certificates_of(self._settings):
            expiry = expiry_s(path)
            if expiry is not None:
                samples.put("ledgermq_certificate_expiry_timestamp_seconds", expiry, setting)
        for setting, path in key_files_of(self._settings):
            try:
                written_s = path.stat().st_mtime
            except OSError:
                # A file that is gone has no age; who reads it says what is wrong.
                continue
            samples.put("ledgermq_key_file_timestamp_seconds", written_s, setting)

    def _backup(self, samples: Samples) -> None:
        root = self._settings.store.path_root_dir
        try:
            stream = read_last_backup(root, name=STREAM_NAME)
            made = [note for note in (read_last_backup(root), stream) if note is not None]
        except LedgerError:
            # A note that cannot be read is none; `store check` has more to say of it.
            return
        if stream is not None:
            streamed_s = stream.created_ms / 1_000
            samples.put("ledgermq_backup_stream_timestamp_seconds", streamed_s)
        if made:
            # What is streamed is backed up.
            last = max(made)
            behind = max(0, self._page.read_committed().position - last.end)
            samples.put("ledgermq_backup_timestamp_seconds", last.created_ms / 1_000)
            samples.put("ledgermq_backup_behind_bytes", behind)
