"""Life of ``ledgermq dev``: nodes are started, addresses printed, keys and orders obeyed.

    FOLDER/n0/    store, run, node.toml and node.log of the first node, and so on
    FOLDER/tokens the token of the HTTP API and the console

The folder is theirs as long as this process lives: a lock on it says so to others.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import selectors
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn, Self

from ledgermq.cli.node.dev_command import PORTS_EACH
from ledgermq.cli.node.forked_node import ForkedNode, import_node, wait_for_orphans
from ledgermq.cli.node.local_node import leader_of
from ledgermq.cli.output import called_as
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, LedgerError, StorageError, StoreLockedError
from ledgermq.model.units import MIB
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.store.files.file_names import is_of_others
from ledgermq.store.files.small_file import read_file, replace_file

LOOPBACK = "127.0.0.1"
FIRST, LAST = 12_000, 30_000
"""Linux gives connections ports from 32768 on, and RocketMQ's brokers take 30911 and more."""

ATTEMPTS = 200


class PortClaims:
    """Ports that nobody else who asks here gets, until they are given back or the process ends.

    The kernel's own choice, port 0, may be taken by any connection between the choice and the
    node's start. These ports are none that it chooses, and who has chosen some claims them in the
    namespace of abstract unix sockets: a claim is seen by all accounts, is no file, and ends with
    its process.
    """

    def __init__(self) -> None:
        self._held = ExitStack()

    def take(self, count: int) -> int:
        """The first of ``count`` ports in a row at which nobody listens.

        Raises:
            StorageError: none were found.
        """
        for _ in range(ATTEMPTS):
            first = FIRST + secrets.randbelow(LAST - FIRST - count)
            if self.has_taken(first, count):
                return first
        raise StorageError(
            "no free ports in a row", count=count, host=LOOPBACK, first=FIRST, last=LAST
        )

    def has_taken(self, first: int, count: int) -> bool:
        """Whether ``count`` ports from ``first`` on were free; they are claimed then."""
        with ExitStack() as claims, suppress(OSError):
            for port in range(first, first + count):
                claim = claims.enter_context(socket.socket(socket.AF_UNIX))
                claim.bind(f"\0ledgermq-port-{port}")
                # Bound as the node will do it, who may follow another one on the same port.
                socket.create_server((LOOPBACK, port)).close()
            self._held.push(claims.pop_all())
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()


TEMPORARY = Path("/tmp")  # noqa: S108 - its name is short: sockets are in the folder
PREFIX = "ledgermq-dev-"
TOKENS = "tokens"
CONFIG = "node.toml"

_TOKEN_WORDS = 3

_PRODUCE, _CONSUME, _HTTP, _MEMBERS, _DIRECT, _OF_WRITERS, _GRPC = range(1, PORTS_EACH)
assert _OF_WRITERS == _DIRECT + 1


class LeaderKilled(NamedTuple):
    """What became of a group whose leader was killed.

    Attributes:
        killed: the node.
        leader: its successor; None where too few are left to elect one.
        took_ms: until there was a successor.
    """

    killed: str
    leader: str | None
    took_ms: int


class NodeFolder:
    """A folder that is this process's alone; a temporary one is removed at the end."""

    def __init__(self, kept: Path | None) -> None:
        """Make it, or take what is there.

        Raises:
            StoreLockedError: another process has it.
            ConfigError: there is something else in it, or it cannot be made.
        """
        self.is_kept = kept is not None
        if kept is None:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=TEMPORARY))
        else:
            self.path = kept.absolute()
            try:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    "folder cannot be made", folder=str(kept), reason=error.strerror
                ) from error
            if not _names(self.path) and not all(map(_is_begun, self.path.iterdir())):
                raise ConfigError(
                    "folder holds something else: give an empty one, or one of an earlier dev",
                    folder=str(self.path),
                    setting="--keep",
                )
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        if not _lock(self._lock):
            raise StoreLockedError("folder is used by another process", folder=str(self.path))

    def names(self) -> list[str]:
        """Nodes that it has of an earlier start, in their order."""
        return _names(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_kept:
            shutil.rmtree(self.path)
        os.close(self._lock)


def sweep() -> None:
    """Remove temporary folders of this account whose process was killed before it could."""
    for path in TEMPORARY.glob(f"{PREFIX}*"):
        # One that has just been made is empty until it is locked.
        with suppress(OSError):
            if path.is_symlink() or path.stat().st_uid != os.getuid() or not any(path.iterdir()):
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if _lock(descriptor):
                    shutil.rmtree(path)
            finally:
                os.close(descriptor)


class DevNodes:
    """One node, or three of a group, that end with this process."""

    def __init__(self, folder: NodeFolder, settings: Sequence[Settings], token: str) -> None:
        """Nodes that are not started; ``token`` is that of HTTP."""
        self._folder = folder
        self._settings = settings
        self.token = token
        self._killed: set[str] = set()
        self.nodes = []
        for one in settings:
            own = folder.path / one.node.self_id
            own.mkdir(mode=0o700, exist_ok=True)
            self.nodes.append(ForkedNode(own, one))

    @property
    def address(self) -> str:
        """Where the client library finds them."""
        return ",".join(str(one.listen.consume) for one in self._settings)

    @property
    def name_server(self) -> str:
        """Where RocketMQ's clients find them."""
        return ";".join(str(one.listen.remoting) for one in self._settings)

    @property
    def https(self) -> list[str]:
        """Addresses of console and HTTP API, none without the web's distribution."""
        wanted = [one.listen.http for one in self._settings]
        return [f"http://{one}" for one in wanted if one is not None]

    @property
    def grpc(self) -> str:
        """Where RocketMQ 5's gRPC clients find them; empty where they do not."""
        return ";".join(one.listen.grpc for one in self._settings if one.listen.grpc)

    def http_of_leader(self) -> str:
        """The one of the node that leads, who answers for topics; empty where there are none.

        Raises:
            TimedOutError: nobody leads within half a minute.
        """
        if not self.https:
            return ""
        return self.https[self.nodes.index(leader_of(self.nodes))]

    def start(self) -> list[str]:
        """Start those that do not run, and return their names once all can serve.

        Raises:
            LedgerError: one ended, or was not ready in time; with what it logged last.
        """
        down = self.down()
        for node in self.nodes:
            if not node.is_up:
                node.launch()
        self._killed.clear()
        for node in self.nodes:
            node.wait_ready()
        return down

    def check(self) -> None:
        """Look whether those run that were not killed.

        Raises:
            LedgerError: one does not; with what it logged last.
        """
        for node in self.nodes:
            if not node.is_up and node.name not in self._killed:
                raise LedgerError(f"{node.name} has ended by itself:\n{node.last_lines()}")

    def down(self) -> list[str]:
        """Names of those that do not run."""
        return [node.name for node in self.nodes if not node.is_up]

    def kill_leader(self) -> LeaderKilled:
        """Kill the node that leads with all of its processes, and wait for its successor.

        Raises:
            LedgerError: there is one node only, or too few run to elect a leader.
            TimedOutError: nobody leads within half a minute.
        """
        majority = len(self.nodes) // 2 + 1
        if len(self.nodes) == 1 or len(self.nodes) - len(self.down()) < majority:
            raise LedgerError(
                "nobody leads who could be killed", nodes=len(self.nodes), down=self.down()
            )
        leader = leader_of(self.nodes)
        began = time.monotonic()
        self._killed.add(leader.name)
        leader.kill_all()
        can_elect = len(self.nodes) - len(self.down()) >= majority
        successor = leader_of(self.nodes).name if can_elect else None
        return LeaderKilled(leader.name, successor, round((time.monotonic() - began) * 1_000))

    def stop(self) -> None:
        """End all processes: in order where the folder is kept, else at once.

        Raises:
            LedgerError: one did not end in order.
        """
        running = [node for node in self.nodes if node.is_up]
        statuses = {}
        try:
            if self._folder.is_kept:
                statuses = {node.name: node.stop() for node in running}
        finally:
            for node in running:
                if node.is_up:
                    node.kill_all()
            wait_for_orphans()
        if any(statuses.values()):
            raise LedgerError("a node did not stop in order", exit_statuses=statuses)

    def told(self) -> Mapping[str, object]:
        """What programs want to know of them, for JSON."""
        return {
            "folder": str(self._folder.path),
            "address": self.address,
            "name_server": self.name_server,
            "grpc": self.grpc,
            "http": self.https,
            "token": self.token,
            "nodes": [
                {
                    "name": node.name,
                    "address": one.listen.consume,
                    "local_address": node.address,
                    "remoting": one.listen.remoting,
                    "http": one.listen.http and f"http://{one.listen.http}",
                    "config": str(node.config),
                    "log": str(node.log),
                }
                for node, one in zip(self.nodes, self._settings, strict=True)
            ],
        }


def make_nodes(
    folder: NodeFolder,
    claims: PortClaims,
    *,
    count: int | None,
    port: int | None,
    has_web: bool,
    has_grpc: bool,
) -> DevNodes:
    """The nodes that a folder has, or new ones; none is started.

    Args:
        claims: ports of new nodes, as long as they live.
        count: how many; None: as many as there are, or one.
        port: the first of theirs, each has ``PORTS_EACH`` in a row; None: as before, or free ones.
        has_web: whether they may have HTTP.
        has_grpc: whether they are to have gRPC; those that are there have it, or not.

    Raises:
        ConfigError: there are others in the folder, or somebody has one of the ports.
    """
    names = folder.names()
    if names:
        found = [load_settings(folder.path / name / CONFIG) for name in names]
        first = (found[0].listen.remoting or "").rpartition(":")[2]
        is_other = count not in (None, len(names)) or (port is not None and str(port) != first)
        if is_other or (has_grpc and found[0].listen.grpc is None):
            raise ConfigError(
                "folder has nodes of another number, at other ports, or without gRPC",
                folder=str(folder.path),
                nodes=len(names),
                first_port=first,
            )
        settings = [_without_web(one) if not has_web else one for one in found]
    else:
        rows = _rows(claims, count or 1, port)
        settings = [
            _settings(number, rows, folder.path, has_web=has_web, has_grpc=has_grpc)
            for number in range(len(rows))
        ]
    return DevNodes(folder, settings, _token(folder.path / TOKENS))


def _rows(claims: PortClaims, count: int, port: int | None) -> list[int]:
    """The first port of each node."""
    if port is None:
        return [claims.take(PORTS_EACH) for _ in range(count)]
    rows = [port + number * PORTS_EACH for number in range(count)]
    for row in rows:
        if not claims.has_taken(row, PORTS_EACH):
            raise ConfigError(
                "port is taken", ports=f"{row} to {row + PORTS_EACH - 1}", setting="--port"
            )
    return rows


def _settings(
    number: int, rows: Sequence[int], folder: Path, *, has_web: bool, has_grpc: bool
) -> Settings:
    defaults, port = Settings(), rows[number]
    names = [f"n{one}" for one in range(len(rows))]
    is_group = len(rows) > 1

    def each(text: str, distance: int) -> tuple[str, ...]:
        """A setting that has all members, of a group."""
        members = zip(names, rows, strict=True)
        return tuple(f"{name}{text}{row + distance}" for name, row in members if is_group)

    return replace(
        defaults,
        node=replace(
            defaults.node,
            self_id=names[number],
            broker_ip=LOOPBACK,
            listen_port=port,
            peers=each(f"-{LOOPBACK}:", _MEMBERS),
        ),
        store=replace(
            defaults.store,
            # Files are made whole: these are large enough for the largest message, and soon made.
            mapped_file_size_commit_log=32 * MIB,
            max_hash_slot_num=50_000,
            max_index_num=200_000,
        ),
        # Who develops makes and deletes topics from the same program, by any client.
        access=replace(defaults.access, admin_over_clients=True),
        # On one machine, where whoever could listen could read the files as well.
        raft=replace(defaults.raft, curve=False, direct_port=port + _DIRECT if is_group else 0),
        listen=replace(
            defaults.listen,
            produce=f"tcp://{LOOPBACK}:{port + _PRODUCE}",
            consume=f"tcp://{LOOPBACK}:{port + _CONSUME}",
            remoting=f"{LOOPBACK}:{port}",
            http=f"{LOOPBACK}:{port + _HTTP}" if has_web else None,
            grpc=f"{LOOPBACK}:{port + _GRPC}" if has_grpc else None,
            # The one two below may be another node's.
            vip_channel=False,
            trusted_network=True,
        ),
        remoting=replace(defaults.remoting, addresses=each(f"-{LOOPBACK}:", 0)),
        grpc=replace(defaults.grpc, members=each(f"={LOOPBACK}:", _GRPC) if has_grpc else ()),
        http=replace(
            defaults.http,
            tokens_file=folder / TOKENS,
            members=each(f"=http://{LOOPBACK}:", _HTTP) if has_web else (),
        ),
        # The disk of who develops is often nearly full, and a refusal no news.
        retention=replace(defaults.retention, refuse_above="100%"),
    )


def _without_web(settings: Settings) -> Settings:
    return replace(settings, listen=replace(settings.listen, http=None))


def _token(path: Path) -> str:
    """The token of the folder, made where there is none, or a crash has left none in its file."""
    words = (read_file(path) or b"").split()
    if len(words) < _TOKEN_WORDS:
        words = [b"dev", secrets.token_hex(16).encode(), b"admin"]
        replace_file(path, b" ".join(words) + b"\n")
    return words[1].decode()


def _is_begun(path: Path) -> bool:
    """Whether it may be there before the first node has its settings: dev was killed then."""
    is_node = path.name.startswith("n") and path.is_dir() and not any(path.iterdir())
    return is_of_others(path.name) or path.name == TOKENS or is_node


def _names(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob(f"n*/{CONFIG}"))


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


TOPIC = "hello"
KILL, START = "k", "s"
KILL_LEADER, START_AGAIN = "kill-leader", "start"
ORDER_SIZE_MAX = 4_096
LOOK_EVERY_S = 1.0
"""How often it is looked whether a node has ended by itself."""

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(arguments: argparse.Namespace) -> int:
    """Run the nodes until Ctrl-C, SIGTERM, or the end of who gives orders; the exit status.

    Raises:
        LedgerError: a node could not be started, or ended by itself.
    """
    began = time.monotonic()
    for number in _ENDINGS:
        signal.signal(number, _end)
    try:
        _live(arguments, began)
    except KeyboardInterrupt:
        # What ends it is what everybody does to it.
        return 0
    return 0


def _live(arguments: argparse.Namespace, began: float) -> None:
    kept: Path | None = arguments.keep
    sweep()
    with ExitStack() as stack:
        folder = stack.enter_context(NodeFolder(kept))
        has_web = import_node()
        claims = stack.enter_context(PortClaims())
        nodes = make_nodes(
            folder,
            claims,
            count=arguments.nodes,
            port=arguments.port,
            has_web=has_web,
            has_grpc=arguments.grpc,
        )
        stack.callback(nodes.stop)
        stack.callback(_end_no_more)
        nodes.start()
        took_s = time.monotonic() - began
        if arguments.json or arguments.orders:
            print(json.dumps({**nodes.told(), "seconds": round(took_s, 3)}), flush=True)
        else:
            print(_text(nodes, folder, took_s), flush=True)
        if arguments.orders:
            _obey(nodes)
        elif len(nodes.nodes) > 1 and sys.stdin.isatty():
            with _keys_at_once():
                _obey_keys(nodes)
        else:
            _watch(nodes)


def _watch(nodes: DevNodes) -> NoReturn:
    while True:
        nodes.check()
        time.sleep(LOOK_EVERY_S)


def _obey(nodes: DevNodes) -> None:
    """Obey the lines of standard input, one answer each, until it or who started this has ended."""
    received = b""
    # Which takes files and /dev/null, too.
    with selectors.PollSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        # Children of who started this may have its end of the pipe as well.
        selector.register(os.pidfd_open(os.getppid()), selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(LOOK_EVERY_S):
                data = os.read(0, ORDER_SIZE_MAX) if key.fd == 0 else b""
                if not data or len(received) > ORDER_SIZE_MAX:
                    return
                *orders, received = (received + data).split(b"\n")
                for order in orders:
                    print(json.dumps(_answer(nodes, order.decode(errors="replace"))), flush=True)
            nodes.check()


def _answer(nodes: DevNodes, order: str) -> dict[str, object]:
    try:
        if order == KILL_LEADER:
            return nodes.kill_leader()._asdict()
        if order == START_AGAIN:
            return {"started": nodes.start()}
    except LedgerError as error:
        return {"error": str(error)}
    return {"error": f"no such order: {order[:64]}"}


def _obey_keys(nodes: DevNodes) -> NoReturn:
    with selectors.PollSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        while True:
            for _ in selector.select(LOOK_EVERY_S):
                key = os.read(0, 1).decode(errors="replace")
                if not key:
                    raise KeyboardInterrupt
                if key in (KILL, START):
                    print(_told_of_key(nodes, key), flush=True)
            nodes.check()


def _told_of_key(nodes: DevNodes, key: str) -> str:
    try:
        if key == START:
            return f"{', '.join(nodes.start()) or 'nobody'} started: all run"
        outcome = nodes.kill_leader()
    except LedgerError as error:
        return str(error)
    what = f"{outcome.killed} killed, which led"
    if outcome.leader is None:
        return f"{what}: too few are left for another one. Sends wait, and fail; {START} starts all"
    return (
        f"{what}: {outcome.leader} leads after {outcome.took_ms} ms. Clients follow it, and nothing"
        f" acknowledged is lost; {START} starts {outcome.killed} again"
    )


def _text(nodes: DevNodes, folder: NodeFolder, took_s: float) -> str:
    what = "One node runs" if len(nodes.nodes) == 1 else f"{len(nodes.nodes)} nodes run"
    fate = "kept" if folder.is_kept else "removed at the end"
    lines = [f"{what} after {took_s:.1f} s in {folder.path} ({fate}).\n"]
    rows = [
        ("Python", _python_line(nodes.address)),
        ("Java", f'producer.setNamesrvAddr("{nodes.name_server}");'),
    ]
    if nodes.grpc:
        rows.append(("gRPC", f'configuration.setEndpoints("{nodes.grpc}");'))
    if nodes.https:
        header = shlex.quote(f"Authorization: Bearer {nodes.token}")
        rows += [
            ("curl", f"curl --header {header} {nodes.http_of_leader()}/api/v1/topics"),
            ("console", f"{nodes.https[0]}/  sign in with the token {nodes.token}"),
        ]
    else:
        rows.append(("console", "none, nor HTTP: pip install 'ledgermq[server]'"))
    rows += [("shell", f"{called_as()} topic list --address {nodes.address}")]
    rows += [("address", nodes.address)]
    rows += [("log", str(node.log)) for node in nodes.nodes]
    lines += [f"  {name:<8}{text}" for name, text in rows]
    if len(nodes.nodes) > 1 and sys.stdin.isatty():
        lines.append(f"\n{KILL} kills the leader, {START} starts again what was killed.")
    lines.append("\nCtrl-C ends it." if folder.is_kept else "\nCtrl-C ends it and leaves nothing.")
    return "\n".join(lines)


def _python_line(address: str) -> str:
    """A command that sends a message, receives it and prints it."""
    program = (
        "from ledgermq.client import Consumer, Producer; "
        f"p = Producer('{address}'); print(p.send('{TOPIC}', b'hello').result()); p.close(); "
        f"c = Consumer('{address}', topic='{TOPIC}', start='first'); "
        "print([m.body for m in c.poll(5)]); c.close()"
    )
    return f'{shlex.quote(sys.executable)} -c "{program}"'


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """The terminal hands over each key when it is pressed, and does not show it."""
    before = termios.tcgetattr(0)
    tty.setcbreak(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_no_more() -> None:
    """What is ending is not interrupted."""
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_IGN)
