"""Two members with messages and a witness without: one of the two is lost, the other goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

import pytest

from ledgermq.model.features import LEVEL
from tests.process.conftest import Node, wait_until
from tests.process.console_client import ConsoleClient
from tests.process.group_nodes import TOPIC, Group, Member, make_growing_group, producer
from tests.process.node_start import run_command
from tests.process.test_group_members import change, raft_answers, raft_status

pytestmark = pytest.mark.slow

TOKEN = "adm-0123456789abcdef0123456789abcdef"


def make_witness(group: Group, member: Member) -> dict[str, object]:
    """Take ``member`` into the group as a witness without bodies; what the command has told."""
    config = member.node.config
    config.write_text(config.read_text().replace("[node]\n", "[node]\nwitness = true\n"))
    member.start()
    wait_until(lambda: raft_answers(member), f"{member.name} to answer")

    def has_level() -> bool:
        counters = group.leader(besides=member).node.status()["counters"]
        return bool(counters["broker"]["feature_level"] == LEVEL)

    wait_until(has_level, "the level to be in force")
    return change(group, "add", member.name, member.peer_address, "--witness", "--without-bodies")


def with_observer(member: Member) -> None:
    tokens = member.node.folder / "tokens"
    tokens.write_text(f"operator {TOKEN} admin\n")
    tokens.chmod(0o600)
    config = member.node.config
    text = config.read_text().replace("[listen]\n", '[listen]\nhttp = "unix"\n')
    config.write_text(f'{text}\n[http]\ntokens_file = "{tokens}"\n')


def observed(member: Member) -> tuple[str, str]:
    """Its metrics, and its console's first page."""
    browser = ConsoleClient(member.node.runtime / "http.sock")
    metrics = browser.get("/metrics", authorization=f"Bearer {TOKEN}").text
    browser.sign_in(token=TOKEN)
    return metrics, browser.get("/").text


def counted(member: Member) -> tuple[int, int]:
    """Whether it leans on the witness, and how many hold all, as its metrics say."""
    counters = member.node.status()["counters"]["raft"]
    return counters["leans_on_witness"], counters["copies"]


def all_may_be_next(leader: Member) -> bool:
    check = run_command("upgrade", "check", "--config", str(leader.node.config))
    return check.stdout.count("may be next") == 3


def send(members: Sequence[Member], prefix: str, count: int = 200) -> None:
    with producer(*members) as one:
        bodies = [f"{prefix}-{number}".encode() for number in range(count)]
        assert len(one.send_batch(TOPIC, bodies).result()) == count


@pytest.mark.long
def test_a_member_is_lost_and_the_other_one_goes_on_with_the_witness(
    make_node: Callable[[], Node],
) -> None:
    group = make_growing_group(make_node, first=2, members=3, prepare=with_observer)
    *full, witness = group.members
    told = make_witness(group, witness)
    witness.node.wait_ready()
    send(full, "both")
    leader = group.leader(besides=witness)
    whole = raft_status(leader)
    wait_until(lambda: counted(leader) == (0, 2), "the metrics to say so")
    metrics, page = observed(leader)
    top = run_command("top", "--once", "--address", leader.address)
    processes = set(witness.node.pids())
    doctor = run_command(
        "doctor", "--only", "ports,levels,store", "--config", str(witness.node.config)
    )
    status = run_command("status", "--config", str(witness.node.config))
    wait_until(lambda: all_may_be_next(leader), "each member to be one that may be restarted")
    os.kill(witness.node.pid("raft"), signal.SIGKILL)
    last = wait_until(lambda: raft_answers(witness) and raft_status(witness)["last"], "the witness")

    leader.kill()
    (other,) = (member for member in full if member is not leader)
    group.leader(besides=witness)
    send([other], "one")
    alone = raft_status(other)
    wait_until(lambda: counted(other) == (1, 1), "the metrics to say so")
    leader.start()
    wait_until(lambda: raft_status(other)["copies"] == 2, "the other one to have all again")
    wait_until(lambda: not raft_status(other)["leans_on_witness"], "nobody to be leant on")
    # Whoever leads by now: the one that came back may be preferred.
    send(full, "both-again")
    known = wait_until(
        lambda: raft_status(witness)["last"] == raft_status(other)["last"], "the witness to know"
    )
    statuses = group.stop()

    assert told["bodiless"] == ["n2"]
    assert processes == {"raft", "supervisor"}
    assert (whole["leans_on_witness"], whole["copies"]) == (False, 2)
    assert doctor.returncode == 0, doctor.stdout
    assert "a witness without bodies, which has no log" in " ".join(doctor.stdout.split())
    assert "holds no messages" in status.stdout and "put lock" not in status.stdout, status
    silent, behind = (f"ledgermq_member_{name}" for name in ("silent_seconds", "behind_entries"))
    assert f'{silent}{{member="n2"}}' in metrics and f'{behind}{{member="n2"}}' not in metrics
    assert f'{behind}{{member="{other.name}"}} 0' in metrics
    assert ["n2", "witness"] in [line.split() for line in top.stdout.splitlines()], top
    assert "without messages" in page and "2 members" in page
    assert last["index"] > 0
    assert (alone["leans_on_witness"], alone["copies"]) == (True, 1)
    assert known
    assert statuses == [0, 0, 0]
    assert group.has_one_log(witness)
    assert [len(member.bodies()) for member in full] == [600, 600]
    assert not (witness.node.root / "dledger-n2").exists()
