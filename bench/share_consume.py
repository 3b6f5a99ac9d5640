"""How fast are messages taken singly from a group of three, beside NATS pull consumers; how late?

Acknowledgements a second in batches of 32; from a send to its handler, beside a plain consumer; how
late what nobody settled comes again, with 100,000 messages in flight, and what each takes of the
leader's broker; 2,000 members on one queue; and what one that hangs costs the others.

Estimate beforehand: a batch is one question, which accepts the batch before it, and a part of a
command that is a round of the log, and 32 messages that are read, told and decoded: some 5 µs a
message in the broker, which is one core's alone.

    python -m bench.share_consume [--no-curve] [--no-nats] [--ack MODE] [--only NAME] [--smoke]
        [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import zmq

from bench.group import BenchGroup, GroupNode, bench_group
from bench.group_produce import SIZE, together
from bench.machine import spread, write
from bench.parked_pulls import AT_ONCE, SOCKETS_EACH
from bench.processes import cpu_seconds, end_in_order, processes_of, role_of
from bench.rivals import jetstream
from ledgermq.client import (
    Admin,
    Consumer,
    Producer,
    ProducerOptions,
    ShareConsumer,
    ShareOptions,
    TakenMessage,
)
from ledgermq.client.aio import AsyncShareConsumer

GROUP, TOPIC, QUEUES = "workers", "jobs", 4
BATCH = 32
MEMBERS_EACH = 8
"""Of each of the two consumer processes; the rival has as many connections."""

SEND_BATCH, SEND_BATCHES_IN_FLIGHT = 64, 16
IN_FLIGHT = 100_000
IN_FLIGHT_EACH = 10_000
LONG_MS = 3_600_000
PROBES, PROBE_MS = 192, 1_500
PAUSE_S = 0.005
MEMBERS_MANY = 2_000
MEMBERS_FEW = 4
LIMITS = "[limits]\nshare_unsettled_per_group = 200000\n"
WAIT_S = 60.0

Figures = dict[str, float]


def fill(addresses: str, topic: str, count: int, *, queues: int = QUEUES, size: int = SIZE) -> None:
    """Have so many messages in a topic."""
    with Admin(addresses) as admin:
        admin.create_topic(topic, queues=queues)
    _send_batches(addresses, topic, count, size=size)


def _send_batches(addresses: str, topic: str, count: int, *, size: int) -> None:
    bodies = [b"x" * size] * SEND_BATCH
    with Producer(addresses, options=ProducerOptions(compress_above=None)) as producer:
        waiting = []
        for _ in range(0, count, SEND_BATCH):
            waiting.append(producer.send_batch(topic, bodies))
            if len(waiting) == SEND_BATCHES_IN_FLIGHT:
                waiting.pop(0).result()
        for future in waiting:
            future.result()


def consume(addresses: str, _size: int, seconds: float, result: Connection) -> None:
    """One process of members that accept what they get; how many, and its processor time in s."""
    options = ShareOptions(max_in_flight=BATCH)
    with ExitStack() as opened:
        members = [
            opened.enter_context(
                ShareConsumer(addresses, group=GROUP, topic=TOPIC, options=options)
            )
            for _ in range(MEMBERS_EACH)
        ]
        result.send("ready")
        result.recv()
        end, spent = time.monotonic() + seconds, time.process_time()
        with ThreadPoolExecutor(MEMBERS_EACH) as pool:
            counts = list(pool.map(lambda member: _accept_all(member, end), members))
        spent = time.process_time() - spent
    result.send((sum(counts), spent))


def _accept_all(member: ShareConsumer, end: float) -> int:
    count = taken = 0
    while time.monotonic() < end:
        messages = member.poll(0.2)
        # They are in the log when the next poll has come back.
        count += taken
        member.accept(*messages)
        taken = len(messages)
    member.flush()
    return count + taken


def acknowledged(group: BenchGroup, *, seconds: float, messages: int) -> Figures:
    """Acknowledgements a second, in batches, of two processes of members; and what each takes of
    the processors, which no other load on the machine changes much.
    """
    fill(group.addresses, TOPIC, messages)
    leader = group.leader()
    before, position = (_spent(group), _cpu_s(leader)), group.committed()
    told: list[tuple[int, float]]
    told, _ = together(group, consume, seconds)
    nodes, broker = _spent(group) - before[0], _cpu_s(leader) - before[1]
    count = max(1, sum(one for one, _ in told))
    with Admin(group.addresses) as admin:
        left = messages - sum(row.low for row in admin.shared_group(GROUP).queues)
    return {
        "acknowledgements/s": count / seconds,
        "leader's broker, µs each": broker * 1e6 / count,
        "all processes of the nodes, µs each": nodes * 1e6 / count,
        "members, µs each": sum(spent for _, spent in told) * 1e6 / count,
        "bytes in the log each": (group.committed() - position) / count,
        "messages that were left": left,
    }


def _spent(group: BenchGroup) -> float:
    return sum(cpu_seconds(node.pid) for node in group.nodes)


def run_nats(base: Path, *, seconds: float, messages: int) -> Figures:
    """The same of NATS pull consumers, R3: by its default, and waiting for each batch's."""
    figures: Figures = {}
    for mode in ("pull", "pullsync"):
        with jetstream.jetstream_group(base, sync_always=False) as url:
            load = jetstream.load(
                url, mode=mode, clients=2 * MEMBERS_EACH, size=SIZE, seconds=seconds, replicas=3,
                messages=messages,
            )  # fmt: skip
        figures[f"{mode}, acknowledgements/s"] = load.messages_per_second
        figures[f"{mode}, batch p50 ms"] = load.p50_ms
    return figures


def _send(addresses: str, topic: str, count: int) -> None:
    """Messages whose bodies are the time, one behind the other, with a pause."""
    with Producer(addresses) as producer:
        for _ in range(count):
            producer.send(topic, str(time.monotonic()).encode()).result()
            time.sleep(PAUSE_S)


def _waits_of(bodies: Iterator[bytes | memoryview]) -> Iterator[float]:
    """Milliseconds from the send of each message to now."""
    for body in bodies:
        yield (time.monotonic() - float(bytes(body))) * 1_000


@contextmanager
def _handlers(count: int, handle: Callable[[threading.Event], None]) -> Iterator[None]:
    """So many threads that handle messages until the block ends; raises what one has met."""
    is_over = threading.Event()
    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(handle, is_over) for _ in range(count)]
        try:
            yield
        finally:
            is_over.set()
        for one in running:
            one.result()


def _handle_share(addresses: str, topic: str, waits: list[float], is_over: threading.Event) -> None:
    with ShareConsumer(addresses, group=GROUP, topic=topic) as member:
        while not is_over.is_set():
            messages = member.poll(0.2)
            waits += _waits_of(message.body for message in messages)
            member.accept(*messages)
            member.flush()


def _handle_plain(addresses: str, topic: str, waits: list[float], is_over: threading.Event) -> None:
    with Consumer(addresses, topic=topic, start="first") as consumer:
        while not is_over.is_set():
            waits += _waits_of(message.body for message in consumer.poll(0.2))


def handled(group: BenchGroup, count: int) -> Figures:
    """From a send to its handler, of a share group and of a plain consumer."""
    figures: Figures = {}
    for name, handle in (("share", _handle_share), ("plain", _handle_plain)):
        waits = _measured(group.addresses, f"handled-{name}", count, handle, members=1)
        figures |= _percentiles(f"send to handler, {name}", waits)
    return figures


def _measured(
    addresses: str,
    topic: str,
    count: int,
    handle: Callable[[str, str, list[float], threading.Event], None],
    *,
    members: int,
) -> list[float]:
    waits: list[float] = []
    with Admin(addresses) as admin:
        admin.create_topic(topic, queues=QUEUES)
    with _handlers(members, lambda is_over: handle(addresses, topic, waits, is_over)):
        time.sleep(0.5)
        _send(addresses, topic, count)
        _wait_for(lambda: len(waits) >= count, f"all messages of {topic} to be handled")
    return waits


def hung(group: BenchGroup, count: int) -> Figures:
    """What one member that takes messages and stands still costs the others."""
    alone = _measured(group.addresses, "hung-0", count, _handle_share, members=MEMBERS_FEW)
    topic = "hung-1"
    fill(group.addresses, topic, SEND_BATCH, size=1)
    options = ShareOptions(max_in_flight=SEND_BATCH, invisible_ms=LONG_MS)
    with ShareConsumer(group.addresses, group=GROUP, topic=topic, options=options) as hanging:
        taken: list[TakenMessage] = []
        while len(taken) < SEND_BATCH:
            taken += hanging.poll(1.0)
        beside = _measured(group.addresses, topic, count, _handle_share, members=MEMBERS_FEW)
    return {
        **_percentiles("without one that hangs", alone),
        **_percentiles("beside one that hangs", beside),
    }


def in_flight(group: BenchGroup, count: int) -> Figures:
    """Memory of what is in flight, and how late what was not settled comes again beside it."""
    addresses, topic, leader = group.addresses, "in-flight", group.leader()
    fill(addresses, topic, count + IN_FLIGHT_EACH, size=100)
    long = ShareOptions(max_in_flight=IN_FLIGHT_EACH, invisible_ms=LONG_MS)
    figures: Figures = {}
    with ExitStack() as opened:

        def member(options: ShareOptions) -> ShareConsumer:
            return opened.enter_context(
                ShareConsumer(addresses, group=GROUP, topic=topic, options=options)
            )

        first = member(long)
        first.accept(*first.poll(1.0))
        first.flush()
        before = _memory(leader)
        held: list[tuple[ShareConsumer, list[TakenMessage]]] = []
        while sum(len(taken) for _, taken in held) < count - IN_FLIGHT_EACH // 2:
            held.append(_take(member(long), IN_FLIGHT_EACH))
        flying = sum(len(taken) for _, taken in held)
        figures["messages in flight"] = flying
        figures["bytes of the broker a message, as taken"] = (_memory(leader) - before) / flying
        short = ShareOptions(max_in_flight=PROBES, invisible_ms=PROBE_MS)
        _take_rest(member(long))

        def late() -> list[float]:
            _send_batches(addresses, topic, PROBES, size=100)
            return _late(member(short), member(short))

        figures |= _percentiles("redelivery late", late())
        for owner, taken in held:
            for at in range(0, len(taken), 2 * BATCH):
                owner.accept(*taken[at : at + 2 * BATCH : 2])
            owner.flush()
        left = flying - flying // 2
        figures["bytes of the broker a message, every second one left"] = (
            _memory(leader) - before
        ) / left
        figures |= _percentiles("redelivery late, every second one left", late())
    return figures


def _take_rest(member: ShareConsumer) -> None:
    """Settle all that nobody has taken."""
    while messages := member.poll(0.5):
        member.accept(*messages)
        member.flush()


def _take(member: ShareConsumer, count: int) -> tuple[ShareConsumer, list[TakenMessage]]:
    taken: list[TakenMessage] = []
    until = time.monotonic() + WAIT_S
    while len(taken) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"took {len(taken)} of {count} messages")
        taken += member.poll(1.0)
    return member, taken


def _late(taker: ShareConsumer, other: ShareConsumer) -> list[float]:
    """Milliseconds by which messages that one has let go come late to the other."""
    _, taken = _take(taker, PROBES)
    due = {(one.queue_id, one.queue_offset): one.until for one in taken}
    late: list[float] = []
    until = time.monotonic() + WAIT_S
    while len(late) < len(due):
        if time.monotonic() > until:
            raise TimeoutError(f"{len(late)} of {len(due)} messages came again")
        messages = other.poll(1.0)
        now_ms = time.time() * 1_000
        places = [(one.queue_id, one.queue_offset) for one in messages]
        late += [now_ms - due[place] for place in places if place in due]
        other.accept(*messages)
        other.flush()
    return late


def _memory(leader: GroupNode) -> int:
    """Bytes that the broker process has, without the pages of files that it has mapped."""
    text = Path(f"/proc/{_broker(leader).pid}/smaps_rollup").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("Anonymous:"))
    return int(line.split()[1]) * 1_024


def _broker(leader: GroupNode) -> psutil.Process:
    (broker,) = (one for one in processes_of(leader.pid) if role_of(one) == "broker")
    return broker


def many_members(group: BenchGroup, members: int, count: int) -> Figures:
    """From a send to its handler, with so many members that wait at one queue."""
    topic = "crowded"
    with Admin(group.addresses) as admin:
        admin.create_topic(topic, queues=1)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_crowd, args=(group.addresses, topic, members, count, theirs), daemon=True
    )
    process.start()
    theirs.close()
    try:
        ours.recv()
        leader = group.leader()
        spent = _cpu_s(leader)
        _send(group.addresses, topic, count)
        waits: list[float]
        waits, of_members = ours.recv()
        spent = _cpu_s(leader) - spent
    finally:
        process.kill()
        process.join()
    name = f"send to handler, {members} members"
    return {
        **_percentiles(name, waits),
        f"{name}, leader's broker, ms each": spent * 1_000 / count,
        f"{name}, members, ms each": of_members * 1_000 / count,
    }


def _cpu_s(leader: GroupNode) -> float:
    return sum(_broker(leader).cpu_times()[:2])


def _crowd(addresses: str, topic: str, members: int, count: int, result: Connection) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    zmq.Context.instance().set(zmq.MAX_SOCKETS, SOCKETS_EACH * members + 1_000)
    asyncio.run(_crowd_of(addresses, topic, members, count, result))


async def _crowd_of(
    addresses: str, topic: str, members: int, count: int, result: Connection
) -> None:
    waits: list[float] = []
    is_done = asyncio.Event()

    async def serve(member: AsyncShareConsumer) -> None:
        while True:
            messages = await member.poll(30.0)
            waits.extend(_waits_of(message.body for message in messages))
            member.accept(*messages)
            await member.flush()
            if len(waits) >= count:
                is_done.set()

    options = ShareOptions(max_in_flight=1)
    tasks = []
    for first in range(0, members, AT_ONCE):
        more = [
            AsyncShareConsumer(addresses, group=GROUP, topic=topic, options=options)
            for _ in range(first, min(first + AT_ONCE, members))
        ]
        await asyncio.gather(*(one.__aenter__() for one in more))
        tasks += [asyncio.create_task(serve(one)) for one in more]
    await asyncio.sleep(1.0)
    result.send("ready")
    spent = time.process_time()
    await is_done.wait()
    result.send((waits, time.process_time() - spent))


def _percentiles(name: str, values: list[float]) -> Figures:
    ordered = sorted(values)
    return {
        f"{name}, p50 ms": ordered[len(ordered) // 2],
        f"{name}, p99 ms": ordered[len(ordered) * 99 // 100],
        f"{name}, worst ms": ordered[-1],
    }


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"waited for {what}")
        time.sleep(0.01)


def measure(base: Path, given: argparse.Namespace) -> Iterator[tuple[str, Figures]]:
    """What each question found, once."""
    is_short: bool = given.smoke
    seconds = 3.0 if is_short else 8.0
    messages = 150_000 if is_short else 600_000
    count = 300 if is_short else 2_000
    questions: Mapping[str, Callable[[BenchGroup], Figures]] = {
        "acknowledged": lambda group: acknowledged(group, seconds=seconds, messages=messages),
        "handled": lambda group: handled(group, count),
        "hung": lambda group: hung(group, count),
        "in_flight": lambda group: in_flight(group, IN_FLIGHT // 5 if is_short else IN_FLIGHT),
        "members": lambda group: many_members(group, MEMBERS_MANY, count),
    }
    for name, question in questions.items():
        if given.only in (None, name):
            with bench_group(base, ack=given.ack, curve=given.curve, more=LIMITS) as group:
                yield name, question(group)
    if given.nats and given.only in (None, "acknowledged"):
        yield "nats R3", run_nats(base, seconds=seconds, messages=messages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ack", default="majority-memory", help="default: %(default)s")
    parser.add_argument("--curve", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--nats", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--only", help="one question: acknowledged, handled, hung, …")
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    rows: dict[str, list[Figures]] = {}
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        for _ in range(1 if given.smoke else 3):
            for name, found in measure(Path(scratch), given):
                rows.setdefault(name, []).append(found)
                print(name, {key: round(value, 2) for key, value in found.items()}, flush=True)
    figures: dict[str, object] = {"ack_mode": given.ack, "curve": given.curve, "nodes": 3}
    for name, measured in rows.items():
        figures[name] = {key: spread([row[key] for row in measured]) for key in measured[0]}
    if not given.smoke and given.only is None:
        write("share_consume", figures)


if __name__ == "__main__":
    main()
