"""``ledgermq cluster init`` and what comes after it: two groups of one real node each."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Producer, ProducerOptions
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import LedgerError, QuotaError
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from ledgermq.sessions.keys.client_keys import make_client_keys, make_node_key
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Member, free_port
from tests.process.group_nodes import make_group as make_members
from tests.process.remoting_client import RemotingClient
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

RIGHTS_MAX_AGE_S = 600

FOLLOWER = re.compile(
    r"ledgermq: told by a follower in term \d+, as of position \d+ of its log: it may be old\."
    r" It knows \S+ as the leader\n"
)
"""What a node says beside an answer that does not come from the leader."""

Told = tuple[int, str, str]
"""Exit status, standard output, standard error."""


def run(capsys: pytest.CaptureFixture[str], address: str, *words: str) -> Told:
    """``ledgermq cluster`` as a shell runs it, but in this process."""
    capsys.readouterr()
    status = main(["cluster", *words, "--address", address, "--timeout", "60"])
    told = capsys.readouterr()
    return status, told.out, told.err


def as_json(told: Told) -> Any:
    status, out, err = told
    # A node that follows says so, and tells what it knows; nothing else is said.
    assert status == 0 and (err == "" or FOLLOWER.fullmatch(err)), told
    return json.loads(out)


class ClusterNode:
    """A group of one node, and the command on its host."""

    def __init__(
        self,
        node: Node,
        name: str,
        capsys: pytest.CaptureFixture[str],
        *,
        listen: Mapping[str, Any] | None = None,
        **tables: dict[str, Any],
    ) -> None:
        self.node = node
        self.name = name
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self._capsys = capsys
        start_client_node(
            node,
            node={"broker_name": name},
            listen={"consume": self.address, **(listen or {})},
            **tables,
        )

    def run(self, *words: str) -> Told:
        """``ledgermq cluster`` as a shell runs it, but in this process."""
        return run(self._capsys, f"ipc://{self.node.runtime}", *words)

    def tell(self, *words: str) -> Any:
        """What it prints as JSON."""
        return as_json(self.run(*words, "--json"))

    def begin(self, root_key: Path) -> Any:
        return self.tell("init", "sales", "--root-key", str(root_key), "--nodes", self.address)

    def start_again(self) -> None:
        """Kill all of its processes, and start it."""
        self.node.end()
        self.node.serve()

    def kept(self) -> dict[str, Any]:
        """What it knows of the cluster, as it is on its disk."""
        kept: dict[str, Any] = json.loads(self._kept.read_text())
        return kept

    def keep_confirmed(self, *, before_s: int) -> None:
        """Have its rights confirmed for the last time so long ago, while it does not run."""
        confirmed_ms = 1_000 * (int(time.time()) - before_s)
        self._kept.write_text(json.dumps({**self.kept(), "confirmedMs": confirmed_ms}))

    @property
    def _kept(self) -> Path:
        return self.node.root / "ledgermq" / "cluster.json"


MakeGroup = Callable[[str], ClusterNode]


@pytest.fixture
def make_group(make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str]) -> MakeGroup:
    return lambda name: ClusterNode(make_node(), name, capsys)


def test_groups_begin_join_and_leave_a_cluster_and_each_step_outlives_all_processes(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    home, other = make_group("orders-a"), make_group("orders-b")
    root_key = tmp_path / "root.json"
    before = home.run("status")
    begun = home.begin(root_key)
    again = home.begin(root_key)
    home.start_again()
    status = home.tell("status")
    ticket = home.run("invite", "orders-b", "--nodes", other.address)
    home.start_again()
    (tmp_path / "ticket").write_text(ticket[1])
    joined = other.run("join", "--ticket", str(tmp_path / "ticket"))
    other.start_again()
    known = other.tell("status")
    listed = home.run("list")
    refused = home.run("leave", "--yes")

    assert before[0] == 0 and "belongs to no cluster of several groups" in before[1]
    assert begun == again == {"cluster": "sales", "home": "orders-a", "root_key": str(root_key)}
    assert root_key.stat().st_mode & 0o777 == 0o600
    assert (status["is_home"], status["signs"], status["epoch"], status["number"]) == (
        True, True, 1, 1,
    )  # fmt: skip
    assert joined == (0, "orders-b belongs to cluster sales, whose home is orders-a\n", "")
    assert (known["group"], known["home"], known["home_nodes"]) == (
        "orders-b", "orders-a", [home.address],
    )  # fmt: skip
    assert [line.split() for line in listed[1].splitlines()] == [
        ["group", "is", "nodes", "user"],
        ["orders-a", "home", home.address, "-"],
        ["orders-b", "-", other.address, "-"],
    ]
    assert refused[0] == 1 and "a home leaves as the last group" in refused[2]

    left = other.run("leave", "--home", f"ipc://{home.node.runtime}", "--yes")
    again = other.run("leave", "--home", f"ipc://{home.node.runtime}", "--yes")
    other.start_again()
    home.start_again()
    alone = home.tell("list")
    last = home.run("leave", "--yes")

    assert left == again == (0, "orders-b belongs to no cluster any more\n", "")
    assert other.tell("status") == {"cluster": None}
    assert [one["group"] for one in alone["groups"]] == ["orders-a"]
    assert last[0] == 0, last
    assert home.tell("status") == {"cluster": None}
    assert home.tell("leave", "--yes") == {"left": None, "group": "orders-a"}


def test_a_group_joins_with_one_command_where_its_admin_is_one_of_the_home(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    home, other = make_group("orders-a"), make_group("orders-b")
    home.begin(tmp_path / "root.json")
    words = ("--home", f"ipc://{home.node.runtime}", "--nodes", other.address)
    joined = other.tell("join", *words)
    again = other.tell("join", *words)
    removed = home.run("remove", "orders-b", "--yes")

    assert joined == again == {"cluster": "sales", "group": "orders-b", "home": "orders-a"}
    assert removed == (0, "orders-b: removed\n", "")
    assert [one["group"] for one in home.tell("list")["groups"]] == ["orders-a"]


def test_what_cannot_be_is_refused_with_the_reason(make_group: MakeGroup, tmp_path: Path) -> None:
    home, other = make_group("orders-a"), make_group("orders-a")
    root_key = tmp_path / "root.json"
    home.begin(root_key)
    words = ("--home", f"ipc://{home.node.runtime}", "--nodes", other.address)
    foreign = other.run("init", "other", "--root-key", str(root_key), "--nodes", other.address)
    twin = other.run("join", *words)
    nowhere = other.run("join", "--home", f"ipc://{home.node.runtime}")
    (tmp_path / "ticket").write_text("{}")
    ticket = other.run("join", "--ticket", str(tmp_path / "ticket"))
    absent = home.run("remove", "orders-c", "--yes")
    unsaid = home.run("remove", "orders-c")
    second = home.run("init", "more", "--root-key", str(tmp_path / "more"), "--nodes", home.address)

    for told, reason in (
        (foreign, "root key is not overwritten"),
        (twin, "another group has that name"),
        (nowhere, "name the consume sockets of all members"),
        (ticket, "not a ticket"),
        (absent, "no group of that name is in the cluster"),
        (unsaid, "say so with --yes"),
        (second, "group belongs to another cluster"),
    ):
        assert told[0] == 1 and reason in told[2], told
    assert other.tell("status") == {"cluster": None}
    assert not (tmp_path / "more").exists()


def test_what_the_home_changes_is_in_the_other_group_at_once_and_outlives_the_home(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    home, other = make_group("orders-a"), make_group("orders-b")
    home.begin(tmp_path / "root.json")
    other.tell("join", "--home", f"ipc://{home.node.runtime}", "--nodes", other.address)

    def groups() -> list[str]:
        return [one["group"] for one in other.tell("list")["groups"]]

    def is_current() -> bool:
        return other.tell("status")["current_ms"] is not None

    wait_until(lambda: groups() == ["orders-a", "orders-b"], "the home's rows")
    wait_until(is_current, "the home to say that these are all")
    home.run("invite", "orders-c", "--nodes", "tcp://127.0.0.1:1")
    wait_until(lambda: len(groups()) == 3, "the change")
    home.node.end()
    other.start_again()

    assert groups() == ["orders-a", "orders-b", "orders-c"]
    wait_until(lambda: other.tell("status")["failure"] != "", "the home to be missed")

    home.node.serve()
    home.run("remove", "orders-c", "--yes")
    wait_until(lambda: len(groups()) == 2, "the home to be asked again")


def test_a_group_is_given_documents_by_its_own_user_alone(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = make_node()
    server = make_node_key(made.folder / "node.curve")
    home = ClusterNode(
        made, "orders-a", capsys,
        listen={"curve_secret_file": str(made.folder / "node.curve")}, access={"enabled": True},
    )  # fmt: skip
    other = ClusterNode(make_node(), "orders-b", capsys)
    keys = other.node.root / "ledgermq" / "keys"
    keys.mkdir(parents=True, exist_ok=True)
    public = make_node_key(keys / "cluster.secret")
    (keys / "cluster.public").write_text(server + "\n")
    home.begin(tmp_path / "root.json")
    with connect_broker(f"ipc://{home.node.runtime}", name="test", timeout_s=PATIENCE_S) as broker:
        AccessAdmin(broker).set_user("group-b", {"publicKeys": [public]}, mode="add")
    ticket = home.run("invite", "orders-b", "--nodes", other.address)
    (tmp_path / "ticket").write_text(ticket[1])
    other.run("join", "--ticket", str(tmp_path / "ticket"))
    wait_until(
        lambda: "may not ask for the cluster's documents" in other.tell("status")["failure"],
        "the home to refuse it",
    )
    home.run("invite", "orders-b", "--nodes", other.address, "--user", "group-b")
    wait_until(lambda: len(other.tell("list")["groups"]) == 2, "the documents")

    assert other.tell("list")["groups"][1]["user"] == "group-b"


def test_documents_go_on_when_the_leader_of_the_home_is_killed(
    make_node: Callable[[], Node], make_group: MakeGroup, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    sockets: list[str] = []

    def prepare(member: Member) -> None:
        sockets.append(f"tcp://127.0.0.1:{free_port()}")
        text = member.node.config.read_text()
        text = text.replace("[listen]\n", f'[listen]\nconsume = "{sockets[-1]}"\n')
        member.node.config.write_text(
            text.replace("[node]\n", '[node]\nbroker_name = "orders-a"\n')
        )

    home = make_members(make_node, ack="majority-fsync", prepare=prepare)
    other = make_group("orders-b")
    leader = home.leader()
    address, nodes = ",".join(home.addresses), ",".join(sockets)
    words = ("init", "sales", "--root-key", str(tmp_path / "root.json"), "--nodes", nodes)
    as_json(run(capsys, address, *words, "--json"))
    other.tell("join", "--home", address, "--nodes", other.address)

    def groups() -> set[str]:
        return {one["group"] for one in other.tell("list")["groups"]}

    wait_until(lambda: len(groups()) == 2, "the documents")
    leader.kill()
    home.leader(besides=leader)
    added = run(capsys, address, "invite", "orders-c", "--nodes", "tcp://127.0.0.1:1")
    wait_until(lambda: "orders-c" in groups(), "the change of the next leader")
    wait_until(lambda: other.tell("status")["current_ms"] is not None, "that leader to be asked")
    signs = {as_json(run(capsys, one.address, "status", "--json"))["signs"] for one in home.up()}

    assert added[0] == 0, added
    assert signs == {True}
    home.stop()


@pytest.mark.long
def test_users_of_the_cluster_have_their_rights_in_each_group_and_lose_them_everywhere(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server_key = tmp_path / "node.curve"
    server = make_node_key(server_key)
    keyed: dict[str, Any] = {
        "listen": {"curve_secret_file": str(server_key)}, "access": {"enabled": True},
    }  # fmt: skip
    home = ClusterNode(make_node(), "orders-a", capsys, **keyed)
    produce = f"tcp://127.0.0.1:{free_port()}"
    listen = {**keyed["listen"], "produce": produce}
    access = {**keyed["access"], "cluster_rights_max_age_s": RIGHTS_MAX_AGE_S}
    other = ClusterNode(make_node(), "orders-b", capsys, listen=listen, access=access)
    keys = other.node.root / "ledgermq" / "keys"
    keys.mkdir(parents=True, exist_ok=True)
    asks = make_node_key(keys / "cluster.secret")
    (keys / "cluster.public").write_text(server + "\n")
    public = make_client_keys(tmp_path / "shop.keys", server=server)
    home.begin(tmp_path / "root.json")
    home_acl = ("--address", f"ipc://{home.node.runtime}")
    other_acl = ("--address", f"ipc://{other.node.runtime}")
    assert main(["acl", "add", "group-b", "--public-key", asks, *home_acl]) == 0
    other.tell(
        "join", "--home", f"ipc://{home.node.runtime}", "--nodes", other.address,
        "--user", "group-b",
    )  # fmt: skip
    shop = ("acl", "add", "shop", "--public-key", public, "--topic", "orders=PUB")
    assert main([*shop, "--cluster", *home_acl]) == 0

    def is_sent() -> bool:
        """By the cluster's user, to the other group."""
        address = f"{other.address}?keys={tmp_path / 'shop.keys'}"
        try:
            with Producer(
                address, options=ProducerOptions(timeout_s=5), one_group=True
            ) as producer:
                producer.send("orders", b"x").result()
        except LedgerError:
            return False
        return True

    wait_until(is_sent, "the user to be let in by the other group")
    capsys.readouterr()
    local = main(["acl", "alter", "shop", "--topic", "orders=SUB", *other_acl])
    refused = capsys.readouterr().err
    foreign = main([*shop, "--cluster", *other_acl])
    not_home = capsys.readouterr().err
    wait_until(lambda: "confirmedMs" in other.kept(), "the home's word in the log")
    home.node.end()
    other.start_again()
    assert is_sent()

    other.node.end()
    other.keep_confirmed(before_s=RIGHTS_MAX_AGE_S + 1)
    other.start_again()
    wait_until(lambda: other.tell("status")["rights_too_old"], "rights that are too old")
    assert not is_sent()

    home.node.serve()
    wait_until(is_sent, "the home to confirm the rights")
    assert main(["acl", "remove", "shop", "--cluster", *home_acl]) == 0
    wait_until(lambda: not is_sent(), "the user to be nobody in the other group")

    assert (local, "user is the cluster's" in refused) == (1, True)
    assert (foreign, "rows of a cluster change in its home" in not_home) == (1, True)


@pytest.mark.long
def test_the_home_moves_by_its_own_word_and_by_the_root_key_when_it_is_lost(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    home, other = make_group("orders-a"), make_group("orders-b")
    root_key = tmp_path / "root.json"
    home.begin(root_key)
    other.tell("join", "--home", f"ipc://{home.node.runtime}", "--nodes", other.address)
    unsaid = home.run("move-home", "orders-b")
    absent = home.run("move-home", "orders-x", "--yes")
    moved = home.tell("move-home", "orders-b", "--yes")
    again = home.tell("move-home", "orders-b", "--yes")
    foreign = home.run("invite", "orders-c", "--nodes", "tcp://127.0.0.1:1")
    for group in (home, other):
        group.start_again()
    added = other.run("invite", "orders-c", "--nodes", "tcp://127.0.0.1:1")

    def known(group: ClusterNode) -> list[str]:
        return [one["group"] for one in group.tell("list")["groups"]]

    wait_until(lambda: "orders-c" in known(home), "the change of the new home")

    assert unsaid[0] == 1 and "say so with --yes" in unsaid[2]
    assert absent[0] == 1 and "no group of that name" in absent[2]
    assert moved == again == {"cluster": "sales", "home": "orders-b", "epoch": 2}
    assert foreign[0] == 1 and "rows of a cluster change in its home" in foreign[2]
    assert added[0] == 0, added

    other.node.end()
    words = ("move-home", "orders-a", "--force", "--yes")
    keyless = home.run(*words)
    wrong = home.run("move-home", "orders-b", *words[2:], "--root-key", str(root_key))
    forced = home.tell(*words, "--root-key", str(root_key))
    repeated = home.tell(*words, "--root-key", str(root_key))
    changed = home.run("remove", "orders-c", "--yes")
    other.node.serve()
    wait_until(lambda: known(other) == ["orders-a", "orders-b"], "the lost home to hear of it")
    status = other.tell("status")

    assert keyless[0] == 1 and "belong together" in keyless[2]
    assert wrong[0] == 1 and "ask the group that is to be the home" in wrong[2]
    assert forced == repeated == {"cluster": "sales", "home": "orders-a", "epoch": 3}
    assert changed[0] == 0, changed
    assert (status["home"], status["is_home"], status["by_root"]) == ("orders-a", False, True)


def test_a_quota_of_the_cluster_holds_in_the_other_group_also_while_the_home_is_away(
    make_group: MakeGroup, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home, other = make_group("orders-a"), make_group("orders-b")
    home_address, address = f"ipc://{home.node.runtime}", f"ipc://{other.node.runtime}"
    home.begin(tmp_path / "root.json")
    other.tell("join", "--home", home_address, "--nodes", other.address)

    def is_refused() -> bool:
        """Whether the quota was overdrawn before, or is by the second of two messages."""
        # A new one each time: one that was refused stays away for as long as it was told.
        with Producer(
            address, options=ProducerOptions(waits_for_quota=False), one_group=True
        ) as producer:
            try:
                for _ in range(2):
                    producer.send("orders", b"x" * 100).result()
            except QuotaError as error:
                assert "topic:orders" in str(error), error
                return True
        return False

    def listed() -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["quota", "list", "--json", "--address", address]) == 0
        quotas: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["quotas"]
        return quotas

    assert not is_refused()
    quota = ("quota", "set", "topic:orders", "--produce-bytes", "1")
    assert main([*quota, "--cluster", "--address", home_address]) == 0
    wait_until(is_refused, "the quota in the other group")
    found = listed()
    capsys.readouterr()
    local = main([*quota, "--address", address])
    refused = capsys.readouterr().err
    home.node.end()
    other.start_again()
    assert is_refused()
    kept = listed()

    home.node.serve()
    remove = ("quota", "remove", "topic:orders", "--cluster", "--address", home_address)
    assert main([*remove]) == 0
    wait_until(lambda: not is_refused(), "the end of the quota in the other group")

    assert [(one["owner"], one["produce_bytes"], one["cluster"]) for one in found] == [
        ("topic:orders", 1, True)
    ]
    assert kept == found
    assert (local, "quota is the cluster's" in refused) == (1, True)
    assert listed() == []


def test_a_secret_of_the_clusters_user_signs_in_the_other_group_once_it_has_the_key(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    remoting = f"127.0.0.1:{free_port()}"
    home = ClusterNode(make_node(), "orders-a", capsys)
    other = ClusterNode(
        make_node(), "orders-b", capsys, listen={"remoting": remoting}, access={"enabled": True}
    )
    home.begin(tmp_path / "root.json")
    other.tell("join", "--home", f"ipc://{home.node.runtime}", "--nodes", other.address)
    (tmp_path / "secret").write_text("12345678")
    shop = ["acl", "add", "shop", "--topic", "orders=PUB|SUB", "--cluster"]
    shop += [
        "--secret-key-file",
        str(tmp_path / "secret"),
        "--address",
        f"ipc://{home.node.runtime}",
    ]
    keyless = main([*shop]), capsys.readouterr().err
    files = [one.node.root / "ledgermq" / "keys" / "cluster-users.key" for one in (home, other)]
    made = main(["acl", "keys", "--users", str(files[0])])
    added = main([*shop])

    with closing(RemotingClient(remoting, signs=("shop", "12345678"))) as client:

        def refusal() -> str | None:
            """None: the request was served."""
            reply = client.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "orders"})
            return None if reply.code == ResponseCode.SUCCESS else str(reply.remark)

        wait_until(lambda: "cannot be checked" in (refusal() or ""), "the user in the other group")
        files[1].parent.mkdir(exist_ok=True)
        shutil.copy(files[0], files[1])
        wait_until(lambda: refusal() is None, "the key to be read")

    assert keyless[0] == 1 and "no key to seal secrets" in keyless[1]
    assert (made, added) == (0, 0)
    for group in (home, other):
        assert '"secretKey": "sealed:' in json.dumps(group.kept())
        assert "12345678" not in json.dumps(group.kept())
