"""Groups of machines, and plain nodes, as the tests of power failures want them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.power.machines import Machine, sync_all, wait_ready
from tests.process.conftest import wait_until
from tests.process.group_nodes import Group, Member, make_group
from tests.process.service_load import Load, wait_for_turns

PATIENT = {"election_timeout_min_ms": 1_500, "election_timeout_max_ms": 3_000}
"""Machines boot together, on few processors."""


def machines(
    make_machine: Callable[[], Machine],
    *,
    members: int = 3,
    ack: str = "majority-fsync",
    log: str = "dledger",
    has_root: bool = True,
    prepare: Callable[[Member], None] = lambda _member: None,
    **tables: Mapping[str, object],
) -> Group:
    """A group that has started and is ready, with a topic of four queues.

    Args:
        log: ``commitlog`` for a plain node, which is alone.
        has_root: the store's folder is there before, and durable, as an installed package's; else
            the node makes it itself, and the topic with the first message.
        tables: more keys of tables that the settings have.
    """

    def prepare_disk(member: Member) -> None:
        amend(member, {"store": {"log": log}})
        if log == "commitlog":
            amend(member, {"node": {"peers": []}})
        amend(member, tables)
        prepare(member)
        if has_root:
            sync_all(member.node.root)
        else:
            shutil.rmtree(member.node.root)

    group = make_group(make_machine, members=members, ack=ack, raft=PATIENT, prepare=prepare_disk)
    for member in group.members:
        wait_ready(member)
    group.leader()
    return group


def amend(member: Member, tables: Mapping[str, Mapping[str, object]]) -> None:
    """Put keys at the beginning of tables of a member's settings; those there are replaced."""
    lines = member.node.config.read_text().splitlines()
    for table, keys in tables.items():
        begin = lines.index(f"[{table}]") + 1 if f"[{table}]" in lines else None
        if begin is None:
            lines.append(f"[{table}]")
            begin = len(lines)
        end = next((n for n in range(begin, len(lines)) if lines[n].startswith("[")), len(lines))
        kept = [one for one in lines[begin:end] if one.split(" = ")[0] not in keys]
        # What JSON writes of these is TOML, too.
        fresh = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        lines[begin:end] = [*fresh, *kept]
    member.node.config.write_text("\n".join(lines) + "\n")


@contextmanager
def under_load(loads: Sequence[Load], group: Group) -> Iterator[None]:
    """Start the clients, stop them at the end; none of them has seen anything wrong.

    A failure tells what the clients were told, and what the members say of themselves.
    """
    for load in loads:
        load.start()
    try:
        yield
    except BaseException as error:
        error.add_note(f"clients: {[load.failures for load in loads]}")
        for member in group.members:
            error.add_note(_told_by(member))
        raise
    finally:
        for load in loads:
            load.stop()
    check_unhurt(loads)


def _told_by(member: Member) -> str:
    """What a member says of itself, and the end of its log."""
    process = member.node.process
    state = "was not started" if process is None else f"exit status {process.poll()}"
    log = member.node.log.read_text()[-4_000:] if member.node.log.exists() else ""
    status = member.status()
    raft = None if status is None else (status["raft"], status["cursors"])
    return f"{member.name}: {state}, {raft}\n{log}"


def check_unhurt(loads: Sequence[Load]) -> None:
    """No client was refused for good, or told two different things."""
    failures = [failure for load in loads for failure in load.failures]
    assert not failures, f"what clients were told: {failures}"


def wait_for_work(loads: Sequence[Load], turns: int) -> None:
    """Until each client has done so much more; none has failed."""
    wait_for_turns(loads, turns, wait_until)
    check_unhurt(loads)
