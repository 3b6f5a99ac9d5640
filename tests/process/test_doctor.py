"""The doctor beside real nodes: of one that runs, of one that does not, and of a sick group."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Member, free_port, make_group
from tests.process.node_start import run_command

pytestmark = pytest.mark.slow


def doctor(node: Node, *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit status, and findings by name."""
    done = run_command("doctor", "--config", node.config, "--json", *words)
    assert done.stderr == ""
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return done.returncode, {finding["check"]: finding for finding in found}


def bad(findings: dict[str, dict[str, str]]) -> dict[str, str]:
    """What fails, with what was measured."""
    return {check: one["measured"] for check, one in findings.items() if one["verdict"] == "FAIL"}


def listen_over_tcp(member: Member) -> None:
    text = member.node.config.read_text()
    member.node.config.write_text(
        text.replace("[listen]", f'[listen]\nproduce = "tcp://127.0.0.1:{free_port()}"')
    )


PARTS = ("--only", "limits,ports,keys,peers,levels,settings,store")


@pytest.mark.long
def test_a_group_that_is_well_and_one_whose_member_is_away(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-fsync", prepare=listen_over_tcp)
    for member in group.members:
        member.node.wait_ready()

    def well_leader() -> tuple[Member, dict[str, dict[str, str]]] | None:
        """Asked again when another one leads meanwhile."""
        leader = group.leader()
        status, found = doctor(leader.node, *PARTS)
        leads = found["node.state"]["measured"].startswith("ready, leader in term ")
        return (leader, found) if status == 0 and leads else None

    leader, well = wait_until(well_leader, "a group that is well")
    away = group.others(leader)[0]
    away.node.stop()
    status, found = doctor(leader.node, *PARTS)

    assert bad(well) == {}
    assert well["ports.node.peers"]["measured"].endswith("is this node's")
    assert well["ports.listen.produce"]["measured"].endswith("is this node's")
    assert well["store.lock"]["measured"] == "held by this node"
    assert well["settings.in-force"]["verdict"] == "OK"
    for other in group.others(leader):
        assert "handshake in" in well[f"peers.{other.name}.reached"]["measured"]
        assert well[f"peers.{other.name}.admitted"]["verdict"] == "OK"
    assert status == 4
    assert f"peers.{away.name}.reached" in bad(found)


def test_a_node_that_is_stopped_and_one_that_was_killed(make_node: Callable[[], Node]) -> None:
    node = make_node()
    port = free_port()
    node.configure(
        store={"mapped_file_size_commit_log": 262_144},
        listen={"consume": f"tcp://127.0.0.1:{port}"},
    )
    serve = ["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)]
    before = doctor(node, *PARTS)
    node.launch(serve)
    node.wait_ready()
    node.stop()
    stopped = doctor(node, *PARTS)
    node.launch(serve)
    wait_until(lambda: node.listen().count("READY=1") == 2, "the second start")
    node.end()
    killed = doctor(node, *PARTS)

    assert [status for status, _ in (before, stopped, killed)] == [0, 0, 0]
    assert [found["store.last-stop"]["verdict"] for _, found in (stopped, killed)] == ["OK", "WARN"]
    assert "does not run" in stopped[1]["node.state"]["measured"]
    assert killed[1]["store.lock"]["measured"] == "free"
    assert stopped[1]["ports.listen.consume"]["measured"] == f"port {port} is free"


def test_settings_that_the_running_node_has_not_read_are_told(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    node.configure(store={"mapped_file_size_commit_log": 262_144})
    node.serve()
    node.configure(store={"mapped_file_size_commit_log": 262_144}, log={"level": "WARNING"})
    status, found = doctor(node, "--only", "settings")

    assert status == 0
    assert found["settings.in-force"]["verdict"] == "WARN"
    assert "log.level" in found["settings.in-force"]["measured"]


def test_the_whole_examination_leaves_nothing_behind(make_node: Callable[[], Node]) -> None:
    node = make_node()
    node.configure()
    before = files_below(node.folder)
    status, found = doctor(node)

    assert status == 0
    assert {check.partition(".")[0] for check in found} >= {"host", "disk", "clock", "limits"}
    assert files_below(node.folder) == before


def files_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))
