"""Supervisor: the process that systemd starts, and that starts, watches and stops the others.

It alone writes the header of the cursor page and its own slot; ``ROOT/lock``, ``ROOT/abort`` and
``ROOT/ledgermq/lock``; ``supervisor.lock``, ``control.sock`` and ``settings.toml`` in the runtime
directory. It has no ZeroMQ context and one thread, so it can fork at any time, and nothing
that clients do can hold it up.

``ROOT/abort`` is made once the writer has recovered the log, and removed when all children have
stopped in order with nothing left to be dispatched: who finds it recovers.
"""

from __future__ import annotations

import gc
import logging
import os
import selectors
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import setproctitle

from ledgermq.daemon.children import (
    OF_CLIENTS,
    STOP_ORDER,
    WATCHING,
    Child,
    Deaths,
    Exit,
    ProcessTable,
    Reloading,
    StoreMeter,
    start_order,
    stopped_with,
)
from ledgermq.daemon.health import notify
from ledgermq.daemon.health.health import HandOver, Readiness, Watchdog, silent_children
from ledgermq.daemon.health.notify import Notifier
from ledgermq.daemon.health.status import collect, sentence
from ledgermq.daemon.health.verdict import HealthWatch
from ledgermq.daemon.store_lock import FamilyLock, JavaLock, make_directory, make_runtime_directory
from ledgermq.formats.kernels import kernel
from ledgermq.ipc.cursor_page import CursorPage, PublishedRole, Role
from ledgermq.ipc.loop import StopFlag
from ledgermq.members.log_replacement import replace_log
from ledgermq.members.mirrors.mirror_mark import check_mirror_mark
from ledgermq.members.mirrors.promotion_note import check_begins_alone
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    ConfigError,
    ProtocolError,
    refused_as,
)
from ledgermq.model.events import Event
from ledgermq.model.exit_status import EXIT_BUG, EXIT_REOPEN, EXIT_STOPPED
from ledgermq.process import log_lines
from ledgermq.process.child_process import process_title
from ledgermq.process.control import ControlServer, check_path
from ledgermq.process.node_status import Health, Meters
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings import reload
from ledgermq.process.store_kind import check_origin
from ledgermq.process.systemd.inherited_sockets import take_inherited
from ledgermq.process.systemd.port_addresses import check_inherited
from ledgermq.sessions.keys.peer_keys import load_keys
from ledgermq.store.files.descriptor_cache import raise_and_tell
from ledgermq.store.files.disk_space import use_reserve, with_reserve
from ledgermq.store.files.disk_sync import sync_directory
from ledgermq.store.files.store_paths import StorePaths

logger = logging.getLogger(__name__)

TURN_MIN_NS = 100_000_000
TURN_MAX_NS = 1_000_000_000
"""Between these the supervisor looks at the page; signals and requests wake it at once."""

PAUSE_NS = 2_000_000_000
"""A turn that comes so late means that this process itself was held up."""

_DIED, _KILLED, _RELOADS = range(3)

_VERBS = ("status", "health")
"""Verbs of the control socket: all about the node, which is measured; and the verdict alone."""


class Supervisor:
    """The node's life, turn by turn. Invariant: once ``is_stopping``, no child is forked."""

    def __init__(
        self,
        settings: Settings,
        config_file: Path,
        table: ProcessTable,
        *,
        page: CursorPage,
        notifier: Notifier,
        stop: StopFlag,
    ) -> None:
        self._settings = settings
        self._config_file = config_file
        self._table = table
        self._page = page
        self._notifier = notifier
        self._stop = stop
        self._children = {role: Child(role, table.entries[role]) for role in start_order(settings)}
        self._counters = page.counters(Role.SUPERVISOR)
        self._meters = Meters()
        self._store_meter = StoreMeter(settings.store.path_root_dir)
        self._readiness = Readiness()
        self._watchdog = Watchdog(page, notifier)
        self._health = HealthWatch(page)
        self._hand_over = HandOver(page)
        self._deaths = Deaths()
        self._reloading = Reloading(page)
        self._abort = settings.store.path_root_dir / "abort"
        self._is_open = False
        self._waits_for = ""
        self._to_stop: list[Child] = []
        self.is_stopping = False
        self._is_reopening = False
        self._is_clean = True
        self._status = EXIT_STOPPED
        self._last_turn_ns = time.monotonic_ns()
        self._awake_since_ns = 0
        self._selector = selectors.DefaultSelector()
        paths = RuntimePaths(settings.listen.runtime_dir)
        self._control = ControlServer(
            paths.control, settings.listen.socket_mode, self._selector, self._answer
        )
        self._selector.register(stop.fileno(), selectors.EVENT_READ)

    def run(self) -> int:
        """Start the children, and turn until they are stopped; the exit status."""
        reload.publish(self._settings)
        for child in self._children.values():
            self._spawn(child)
        while not (self.is_stopping and not self._to_stop):
            for key, _ in self._selector.select(self._timeout_s()):
                if key.fd == self._stop.fileno():
                    self._stop.drain()
                else:
                    self._control.serve(key.fd, time.monotonic_ns())
            self._turn(time.monotonic_ns())
            if self._is_reopening and not self._to_stop:
                self._reopen()
        self._mark_closed()
        logger.info(
            "node stopped",
            extra={"event": Event.NODE_STOPPED, "status": self._status, "clean": self._is_clean},
        )
        return self._status

    def close(self) -> None:
        """Close the control socket; children that are still there are killed."""
        for child in self._children.values():
            child.kill()
        self._store_meter.close()
        self._control.close()
        self._selector.close()

    def _turn(self, now_ns: int) -> None:
        if now_ns - self._last_turn_ns > PAUSE_NS:
            self._awake_since_ns = now_ns
        self._last_turn_ns = now_ns
        self._store_meter.look()
        for child in self._children.values():
            exit_ = child.reap()
            if exit_ is not None:
                self._child_ended(child, exit_, now_ns)
        if self._stop.reason and (self._is_reopening or not self.is_stopping):
            self._begin_stop(self._stop.reason, EXIT_STOPPED)
        if self._stop.reload:
            self._stop.reload = False
            self._reload(now_ns)
        if self._reloading.is_going_on:
            self._look_whether_settings_are_taken(now_ns)
        silent = self._silent(now_ns)
        is_silent = any(child.role not in WATCHING for child in silent)
        if self.is_stopping:
            self._continue_stop(now_ns)
        else:
            self._restart_due(now_ns)
            for child in silent:
                self._kill_hung(child, now_ns)
            self._look_for_readiness(now_ns, is_silent=is_silent)
        self._watchdog.look(
            self._settings,
            now_ns,
            is_silent=is_silent,
            # Who dies of requests is down for a while, and the node goes on.
            is_down=not self.is_stopping
            and any(not (one.pid or one.restart_at_ns) for one in self._children.values()),
        )
        self._notifier.status(
            sentence(
                self._page,
                health=self._judge(now_ns),
                trouble=self._watchdog.trouble,
                lacks_settings=self._reloading.late,
            ),
            now_ns,
        )
        self._page.beat(Role.SUPERVISOR, now_ns)

    def _timeout_s(self) -> float:
        is_settled = (
            self._readiness.is_ready
            and not self.is_stopping
            and not self._reloading.is_awaited
            and not any(child.restart_at_ns for child in self._children.values())
        )
        longest = TURN_MAX_NS if is_settled else TURN_MIN_NS
        watchdog = self._notifier.watchdog_interval_ns
        if watchdog:
            longest = min(longest, watchdog // 2)
        return max(longest, TURN_MIN_NS) / 1_000_000_000

    def _spawn(self, child: Child) -> None:
        child.spawn(self._settings, self._leave, time.monotonic_ns())
        logger.info("child started", extra={"child": child.role.title, "pid": child.pid})

    def _leave(self) -> None:
        """In a child: close what is the supervisor's alone."""
        self._stop.close_in_child()
        self._selector.close()
        self._control.close_in_child()
        self._store_meter.close_in_child()
        self._notifier.close()

    def _child_ended(self, child: Child, exit_: Exit, now_ns: int) -> None:
        lived_ms = (now_ns - child.forked_ns) // 1_000_000
        fields = {"child": child.role.title, "exit": exit_.text, "lived_ms": lived_ms}
        wants_reopening = exit_.code == EXIT_REOPEN
        if self.is_stopping:
            was_asked = child.stop_deadline_ns != 0
            if (was_asked and exit_.code == EXIT_STOPPED) or wants_reopening:
                logger.info("child stopped", extra=fields)
            else:
                logger.error(
                    "child died while the node was stopping",
                    extra={"event": Event.PROCESS_DIED, **fields},
                )
                self._fail(exit_.node_status, child)
            return
        if wants_reopening:
            self._begin_reopening()
            return
        self._counters[_DIED] += 1
        is_of_clients = child.role in OF_CLIENTS
        pause_ns = child.pause_ns(now_ns, self._settings) if is_of_clients else 0
        if pause_ns:
            fields["restart_in_ms"] = pause_ns // 1_000_000
        logger.error("child died", extra={"event": Event.PROCESS_DIED, **fields})
        if child.ends_node(exit_):
            self._begin_stop(f"{child.role.title} ended with {exit_.text}", exit_.node_status)
        elif not is_of_clients and self._deaths.add(now_ns, self._settings):
            self._begin_stop("children die too often", exit_.node_status)
        else:
            child.restarts += 1
            child.restart_at_ns = now_ns + pause_ns
            self._restart_due(now_ns)

    def _restart_due(self, now_ns: int) -> None:
        """Start those again whose pause is over."""
        for child in self._children.values():
            if child.restart_at_ns and now_ns >= child.restart_at_ns:
                self._spawn(child)

    def _silent(self, now_ns: int) -> list[Child]:
        return silent_children(
            self._page,
            self._children.values(),
            self._settings,
            now_ns,
            since_ns=self._awake_since_ns,
        )

    def _kill_hung(self, child: Child, now_ns: int) -> None:
        if child.is_killed:
            return
        self._counters[_KILLED] += 1
        logger.error(
            "child hangs and is killed",
            extra={
                "event": Event.PROCESS_HANGS,
                "child": child.role.title,
                "pid": child.pid,
                "silent_ms": child.silence_ms(self._page, now_ns),
                "limit_ms": child.silence_max_ms(self._page, self._settings),
            },
        )
        child.kill()

    def _begin_stop(self, reason: str, status: int) -> None:
        assert self._is_reopening or not self.is_stopping
        # Asked to stop while it is opened anew: nothing is started again.
        self._is_reopening = False
        logger.info(
            "node stops", extra={"event": Event.NODE_STOPS, "reason": reason, "status": status}
        )
        self._notifier.stopping()
        self.is_stopping = True
        self._to_stop = [self._children[role] for role in STOP_ORDER if role in self._children]
        if status != EXIT_STOPPED:
            self._fail(status)
        elif self._page.read_grant().role is PublishedRole.LEADER:
            self._hand_over.begin(self._settings)

    def _begin_reopening(self) -> None:
        """The log is another one from now on, or is to be looked at again: all processes end, and
        begin again with what is there then."""
        logger.info("node is opened anew", extra={"event": Event.NODE_REOPENED})
        self.is_stopping = self._is_reopening = True
        self._to_stop = [self._children[role] for role in STOP_ORDER if role in self._children]

    def _reopen(self) -> None:
        """All processes have ended: put the log in place, and start them; or end, if one failed."""
        self._is_reopening = False
        # ``is_stopping`` stands, and nobody is left to stop: ``run`` ends.
        if self._status != EXIT_STOPPED:
            return
        replace_log(StorePaths.of(self._settings))
        self._page.reset()
        self._readiness = Readiness()
        self._watchdog.reopened()
        self._health.reopened()
        self._waits_for = ""
        self.is_stopping = False
        for child in self._children.values():
            self._spawn(child)

    def _continue_stop(self, now_ns: int) -> None:
        """Ask the next child, or kill the one that takes too long."""
        if self._hand_over.is_going_on(now_ns):
            self._waits_for = "another leader"
            return
        while self._to_stop:
            child = self._to_stop[0]
            if child.pid == 0:
                self._to_stop.pop(0)
                continue
            timeout_ns = self._settings.supervision.stop_timeout_ms * 1_000_000
            self._waits_for = child.role.title
            if not child.is_killed:
                # Its own deadline ends the wait, which the settings may have made a long one.
                self._notifier.extend_timeout(now_ns)
            if not child.stop_deadline_ns:
                for one in stopped_with(child, self._to_stop):
                    one.ask_to_stop(now_ns + timeout_ns)
            elif now_ns > child.stop_deadline_ns and not child.is_killed:
                logger.error(
                    "child does not stop and is killed",
                    extra={"event": Event.PROCESS_STUCK, "child": child.role.title},
                )
                self._fail(EXIT_BUG, child)
                child.kill()
                child.stop_deadline_ns = now_ns + timeout_ns
            elif now_ns > child.stop_deadline_ns:
                # Not even SIGKILL ends it: it hangs in the kernel, and dies with us or later.
                logger.error(
                    "child cannot be killed",
                    extra={"event": Event.PROCESS_STUCK, "child": child.role.title},
                )
                self._fail(EXIT_BUG, child)
                self._to_stop.pop(0)
                continue
            return

    def _fail(self, status: int, child: Child | None = None) -> None:
        """The stop is not clean, unless ``child`` only watched; the first failure gives the exit
        status.
        """
        if child is not None and child.role in WATCHING:
            return
        self._is_clean = False
        if self._status == EXIT_STOPPED:
            self._status = status

    def _mark_open(self) -> None:
        if self._is_open:
            return
        _touch(self._abort)
        self._is_open = True

    def _mark_closed(self) -> None:
        behind = self._page.read_committed().position - self._page.read_dispatched().position
        if behind > 0:
            logger.warning("stopped with messages not dispatched", extra={"bytes": behind})
            self._is_clean = False
        if self._is_clean:
            self._abort.unlink(missing_ok=True)
            sync_directory(self._abort.parent)

    def _look_for_readiness(self, now_ns: int, *, is_silent: bool) -> None:
        if self._page.has_written():
            self._mark_open()
        if self._readiness.is_ready:
            return
        children = self._children.values()
        self._waits_for = self._readiness.missing(self._page, children, self._settings)
        if self._readiness.is_ready:
            self._mark_open()
            logger.info(
                "node is ready", extra={"event": Event.NODE_READY, "after_ms": self._age_ms()}
            )
            self._notifier.ready()
        elif not is_silent and self._readiness.has_progressed(self._page, children):
            self._notifier.extend_timeout(now_ns)

    def _reload(self, now_ns: int) -> None:
        if self._readiness.is_ready:
            self._notifier.reloading()
        fresh = reload.reread(self._config_file, self._settings)
        try:
            reload.publish(fresh)
        except OSError as error:
            logger.error("settings cannot be given to the processes, and stay: %s", error)
            fresh = self._settings
        self._settings = fresh
        self._reloading.begin(self._settings, now_ns)
        for child in self._children.values():
            child.send(signal.SIGHUP)
        self._counters[_RELOADS] += 1

    def _look_whether_settings_are_taken(self, now_ns: int) -> None:
        was_awaited = self._reloading.is_awaited
        self._reloading.look(self._children.values(), now_ns)
        if was_awaited and not self._reloading.is_awaited and self._readiness.is_ready:
            self._notifier.ready()

    def _answer(self, verb: str, request: Mapping[str, object]) -> Mapping[str, object]:
        if verb not in _VERBS:
            raise ProtocolError("unknown verb", verb=verb, known=list(_VERBS))
        health = self._judge(time.monotonic_ns())
        if verb == "health":
            return health
        return collect(
            self._page,
            self._children,
            self._settings,
            health=health,
            waits_for=self._waits_for,
            meters=self._meters,
            used_by_store=self._store_meter.ask(time.monotonic_ns()),
        )

    def _judge(self, now_ns: int) -> Health:
        return self._health.look(
            [child for child in self._children.values() if child.role not in WATCHING],
            self._settings,
            now_ns,
            is_stopping=self.is_stopping,
            was_ready=self._readiness.is_ready,
            waits_for=self._waits_for,
            since_ns=self._awake_since_ns,
        )

    def _age_ms(self) -> int:
        return time.time_ns() // 1_000_000 - self._page.started_ms


def run(settings: Settings, config_file: Path, *, table: ProcessTable | None = None) -> int:
    """Be the supervisor of a node, until it is stopped; the exit status.

    Args:
        settings: what ``config_file`` holds.
        config_file: read again on SIGHUP.
        table: what to run, the node's own processes if left out.

    Returns:
        0 stopped on demand and clean, 1 a child refuses the settings, 2 a child's storage failed,
        3 a child failed too often, or did not stop, 78 the store needs a newer version.

    Raises:
        ConfigError: Python runs without assertions, the runtime directory cannot be used, or
            systemd listens where the settings do not.
        StoreLockedError: another process has the store, or the runtime directory.
        StorageError: a directory, a lock or the page cannot be made.
    """
    if not __debug__:
        raise ConfigError("python -O removes the assertions that guard the store: run without -O")
    log_lines.configure(Role.SUPERVISOR.title, settings.log, node=settings.node.self_id)
    # What is made belongs to this account alone; sockets for others get their mode by settings.
    os.umask(0o077)
    raise_and_tell(settings)
    # Before the environment changes, at which the place for the name cannot be found any more.
    setproctitle.setproctitle(process_title(Role.SUPERVISOR, settings))
    notifier = notify.connect()
    take_inherited(os.environ)
    check_inherited(settings.listen)
    if table is None:
        table = ProcessTable.load(start_order(settings))
    with ExitStack() as resources:
        page = _open_node(settings, resources)
        stop = StopFlag()
        stop.install()
        # Any handler will do: what wakes the loop is the byte that Python writes for it.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        gc.collect()
        # What is shared with the children stays so: the collector no longer writes into it.
        gc.freeze()
        supervisor = Supervisor(
            settings, config_file, table, page=page, notifier=notifier, stop=stop
        )
        resources.callback(supervisor.close)
        return supervisor.run()


def _open_node(settings: Settings, resources: ExitStack) -> CursorPage:
    """Take the locks, and make the runtime directory and the page."""
    paths = RuntimePaths(settings.listen.runtime_dir)
    own = StorePaths.of(settings).own
    wait_ms = settings.supervision.stop_timeout_ms
    check_path(paths.control)
    load_keys(settings)  # a node without its keys is refused before anything is touched
    check_origin(StorePaths.of(settings), settings)
    make_directory(own)
    make_runtime_directory(paths.directory, socket_mode=settings.listen.socket_mode)
    java = JavaLock.take(settings.store.path_root_dir / "lock")
    resources.callback(java.release)
    for lock in (own / "lock", paths.directory / "supervisor.lock"):
        resources.callback(FamilyLock.take(lock, wait_ms=wait_ms).release)
    check_mirror_mark(settings)
    check_begins_alone(settings)
    use_reserve(StorePaths.of(settings).reserve)
    replace_log(StorePaths.of(settings))
    page = CursorPage.create(paths.cursors)
    resources.callback(page.close)
    page.enter_process(Role.SUPERVISOR)
    log_lines.follow(page)
    resources.callback(log_lines.follow, None)
    logger.info(
        "node starts",
        extra={
            "event": Event.NODE_STARTS,
            "store": settings.store.path_root_dir,
            "runtime": paths.directory,
            "generation": page.generation,
        },
    )
    if not kernel.compiled:
        logger.warning(
            "kernels are plain Python: this node takes and gives few messages a second",
            extra={"event": Event.PLAIN_KERNELS},
        )
    return page


def _touch(path: Path) -> None:
    with refused_as("marker not made", why="within", path=path):
        with_reserve(lambda: path.touch(mode=0o600))
        sync_directory(path.parent)
