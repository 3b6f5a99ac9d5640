"""Life of ``ledgermq dev``: nodes are started, addresses printed, keys and orders obeyed."""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shlex
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ledgermq.cli.node.dev_nodes import DevNodes, NodeFolder, PortClaims, make_nodes, sweep
from ledgermq.cli.node.forked_node import import_node
from ledgermq.model.errors import LedgerError

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
    rows += [("shell", f"ledgermq topic list --address {nodes.address}")]
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
