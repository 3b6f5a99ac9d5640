"""How far does a mirror lag over a line of 50 ms that loses 1 %, under all that a group takes?

Three nodes in one network namespace take what two producers give; a mirror in another one copies
them over TLS and a veth pair with netem, once for each congestion control that the kernel has.
Then the source ends at once, by -9, under that load: what `mirror promote` says, what `mirror
missing` lists of the old log, and what is missing, which is counted in the logs themselves. At last
the old leader rejoins as a mirror of the new group: what is sent for that, and how long it takes.

Estimate beforehand: by cubic a connection gets 1.2 × MSS / (RTT × √loss), 0.35 MB/s, and lags as
long as the load lasts. bbr fills the line in spite of the loss: an answer of 4 MiB takes a round
trip, its transfer, and some 20 ms to be read, verified and written, 30 to 50 MB/s; on two cores,
which the source and its producers have already, half of that.

    sudo python -m bench.mirror_link [--delay-ms N] [--loss PERCENT] [--ack MODE] [--smoke]
                                     [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.group import NODES, BenchGroup, GroupNode, bench_group, free_ports
from bench.group_load import GroupLoad, Load, rate_of
from bench.lossy_link import Line, congestion_controls, lossy_link
from bench.machine import write
from bench.node import COMMAND, configuration
from bench.processes import end_in_order
from ledgermq.members.mirrors.mirror_report import MirrorReport, read_mirror_report
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory

PRODUCERS = 2
LOAD = Load(batch=64, size=1024, in_flight=16)
NAME = "site-b"
TOKEN = "0123456789abcdef" * 2
MIRROR = "m0"
LOOK_EVERY_S = 0.2
PATIENCE_S = 300.0
CONTROLS = ("cubic", "bbr")


class Credentials:
    """What both sites need to speak TLS with one another; a certificate for both addresses."""

    def __init__(self, folder: Path, line: Line) -> None:
        self.certificate, self.key = folder / "tls.pem", folder / "tls.key"
        names = f"IP:{line.near.address},IP:{line.far.address}"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-days", "2", "-subj", "/CN=bench", "-addext", f"subjectAltName={names}",
             "-keyout", str(self.key), "-out", str(self.certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        self.tokens, self.token = folder / "tokens", folder / "token"
        self.tokens.write_text(f"{NAME} {TOKEN} mirror\n")
        self.token.write_text(TOKEN)
        for path in (self.tokens, self.token):
            path.chmod(0o600)

    def answers(self) -> str:
        """Settings of a node that mirrors may ask."""
        return (
            f'[http]\ntls_certificate_file = "{self.certificate}"\ntls_key_file = "{self.key}"\n'
            f'tokens_file = "{self.tokens}"\nconsole = false\n'
        )

    def asks(self, urls: list[str]) -> str:
        """Settings of a mirror."""
        return (
            f'[mirror]\nsources = {json.dumps(urls)}\ntoken_file = "{self.token}"\n'
            f'ca_file = "{self.certificate}"\n'
        )


@contextmanager
def producers(group: BenchGroup, scratch: Path) -> Iterator[GroupLoad]:
    """Producers that send all that is taken; they end without their group, too."""
    load = GroupLoad(group.addresses, scratch, PRODUCERS)
    try:
        load.wait_ready()
        load.tell(LOAD)
        yield load
    finally:
        for process in load.processes:
            process.kill()
            process.join()


@contextmanager
def alone(scratch: Path, name: str, prefix: list[str], settings: str) -> Iterator[GroupNode]:
    """A node of one site, made and not started."""
    own = scratch / name
    own.mkdir()
    runtime = Path(tempfile.mkdtemp(prefix="lmq-", dir="/tmp"))
    text = f'[node]\nself_id = "{name}"\n' + configuration(
        own, runtime, ack="majority-fsync", level="INFO", more=settings
    )
    node = GroupNode(name, own, runtime, text, prefix=prefix)
    try:
        yield node
    finally:
        node.destroy()


def report_of(node: GroupNode) -> MirrorReport:
    """What the mirror tells; waits for it."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        report = read_mirror_report(node.runtime / "mirror")
        if report is not None and report["silent_s"] is not None:
            return report
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError(f"the mirror hears nobody; {node.complaints()}")


def wait_level(node: GroupNode, position: int, *, patience_s: float) -> float | None:
    """Seconds until it has dispatched all up to ``position``; None: not within ``patience_s``."""
    begin = time.monotonic()
    while time.monotonic() - begin < patience_s:
        standing = node.standing()
        if standing is not None and standing.dispatched >= position:
            return round(time.monotonic() - begin, 2)
        time.sleep(LOOK_EVERY_S)
    return None


def watch(node: GroupNode, seconds: float) -> dict[str, float]:
    """The worst that the mirror says of its lag meanwhile, and what it receives."""
    begin, before = time.monotonic(), report_of(node)
    worst = {"lag_s": 0.0, "lag_bytes": 0.0, "lag_messages": 0.0}
    while time.monotonic() - begin < seconds:
        report = report_of(node)
        worst["lag_s"] = max(worst["lag_s"], report["lag_s"] or 0.0)
        worst["lag_bytes"] = max(worst["lag_bytes"], report["lag_bytes"])
        worst["lag_messages"] = max(worst["lag_messages"], report["lag_messages"])
        time.sleep(LOOK_EVERY_S)
    received = report_of(node)["received_bytes"] - before["received_bytes"]
    took = time.monotonic() - begin
    return {**worst, "received_mb_per_s": round(received / took / 1e6, 2)}


def told(*words: str) -> dict[str, object]:
    """What a command says, as JSON."""
    done = subprocess.run([*COMMAND, *words, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def messages_behind(node: GroupNode, position: int) -> int:
    """Messages of users in a stopped node's log from ``position`` on, counted there."""
    reader = LogReader(open_directory(node.directory / "store", self_id=node.name))
    try:
        records = reader.iterate(position)
        return sum(one.message.topic != SYSTEM_TOPIC for one in records)
    finally:
        reader.close()


def listed(answer: dict[str, object]) -> int:
    """Messages that ``mirror missing`` or ``mirror rejoin`` lists."""
    queues = answer["queues"]
    assert isinstance(queues, list)
    return sum(int(queue["messages"]) for queue in queues)


def lose(
    group: BenchGroup, mirror: GroupNode, load: GroupLoad
) -> tuple[GroupNode, dict[str, object]]:
    """End the source at once under load, promote the mirror, and look what is said to be missing.

    Returns:
        who led, and the figures.
    """
    load.take()
    begin_ns = time.monotonic_ns()
    time.sleep(2.0)
    old = group.leader()
    for node in group.nodes:
        node.kill()
    acked = load.take()
    time.sleep(2.0)
    said = report_of(mirror)
    mirror.stop()
    # Everything but [mirror], which stands last.
    mirror.config.write_text(mirror.config.read_text().partition("[mirror]")[0])
    promotion = told("mirror", "promote", "--config", str(mirror.config), "--yes")
    promoted = mirror.directory / "store" / "ledgermq" / "promoted"
    missing = told("mirror", "missing", str(old.directory / "store"), "--promoted", str(promoted))
    end, index, word = promotion["end"], promotion["index"], promotion["last_word"]
    assert isinstance(end, int) and isinstance(index, int) and isinstance(word, dict)
    counted = messages_behind(old, end)
    return old, {
        "messages_per_second_before": round(rate_of(acked, begin_ns, time.monotonic_ns())),
        "last_report_lag_messages": said["lag_messages"],
        "promote_said_missing_at_least": max(0, word["source_index"] - index),
        "missing_listed": listed(missing),
        "missing_counted": counted,
        "is_equal": listed(missing) == counted,
    }


def fail_back(
    old: GroupNode, mirror: GroupNode, line: Line, keys: Credentials
) -> dict[str, object]:
    """The old leader becomes a mirror of the promoted group."""
    http = f"{line.far.address}:{free_ports(1)[0]}"
    text = mirror.config.read_text().replace("[listen]\n", f'[listen]\nhttp = "{http}"\n')
    mirror.config.write_text(text + keys.answers())
    mirror.start()
    until = time.monotonic() + PATIENCE_S
    while not mirror.leads():
        if time.monotonic() > until:
            raise TimeoutError(f"the promoted mirror does not lead; {mirror.complaints()}")
        time.sleep(LOOK_EVERY_S)
    promoted = mirror.directory / "store" / "ledgermq" / "promoted"
    begin = time.monotonic()
    done = told(
        "mirror", "rejoin", "--config", str(old.config), "--promoted", str(promoted), "--yes"
    )
    rejoined = time.monotonic() - begin
    with alone(old.directory, old.name, line.near.prefix, keys.asks([f"https://{http}"])) as again:
        (old.directory / "store").rename(again.directory / "store")
        again.start()
        standing = mirror.standing()
        assert standing is not None
        waited = wait_level(again, standing.committed, patience_s=PATIENCE_S)
        received = report_of(again)["received_bytes"]
        again.stop()
    mirror.stop()
    return {
        "kept_mb": round(int(str(done["kept"])) / 1e6, 1),
        "cut_messages": listed(done),
        "rejoin_took_s": round(rejoined, 2),
        "level_after_s": waited,
        "sent_mb": round(received / 1e6, 3),
    }


def run(
    base: Path, control: str, *, delay_ms: float, loss: float, ack: str, seconds: float
) -> dict[str, object]:
    """One congestion control."""
    with (
        tempfile.TemporaryDirectory(dir=base) as own,
        lossy_link(delay_ms=delay_ms, loss_percent=loss) as line,
    ):
        scratch = Path(own)
        line.set_congestion_control(control)
        keys = Credentials(scratch, line)
        http = [f"{line.near.address}:{port}" for port in free_ports(NODES)]
        asked = keys.asks([f"https://{one}" for one in http])
        with (
            bench_group(
                scratch, ack=ack, curve=True, more=keys.answers(), http=http,
                prefix=line.near.prefix,
            ) as group,
            alone(scratch, MIRROR, line.far.prefix, asked) as mirror,
        ):  # fmt: skip
            mirror.start()
            report_of(mirror)
            with producers(group, scratch) as load:
                lag = watch(mirror, seconds)
                load.tell(Load(1, 1, 1, 1.0))
                caught_up = wait_level(mirror, group.committed(), patience_s=seconds)
                lag_left = report_of(mirror)["lag_bytes"]
                load.tell(LOAD)
                time.sleep(seconds / 4)
                old, ended = lose(group, mirror, load)
            back = fail_back(old, mirror, line, keys)
    return {
        "line": line.made_of,
        "under_load": lag,
        "level_after_load_s": caught_up,
        "lag_bytes_left": lag_left,
        "sudden_end": ended,
        "fail_back": back,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=50.0, help="round trip (%(default)s)")
    parser.add_argument("--loss", type=float, default=1.0, help="percent (%(default)s)")
    parser.add_argument("--ack", default="majority-fsync", help="ack.mode (%(default)s)")
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    if os.geteuid() != 0:
        print("left out: namespaces are root's")
        return
    seconds = 4.0 if given.smoke else 60.0
    controls = [one for one in CONTROLS if one in congestion_controls()]
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        found = {
            control: run(
                Path(scratch), control, delay_ms=given.delay_ms, loss=given.loss, ack=given.ack,
                seconds=seconds,
            )
            for control in controls
        }  # fmt: skip
    figures: dict[str, object] = {
        "delay_ms": given.delay_ms, "loss_percent": given.loss, "ack": given.ack,
        "seconds": seconds, "by_congestion_control": found,
    }  # fmt: skip
    if given.smoke:
        print(json.dumps(figures, indent=2))
        return
    write("mirror_link", figures)


if __name__ == "__main__":
    main()
