"""A group as ``config init`` makes it, each member at a loopback address of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import SIZES, Group, Member, free_port, wait_heard
from tests.process.node_start import run_command

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
SHOP = "shop topic:orders=PUB|SUB group:billing=SUB"


class FirstGroup:
    """Three nodes that were started with what ``config init`` has made, but for their folders.

    With ``has_witness`` the last of them is a witness, which is not taken in yet.

    Attributes:
        peer_port: of members, of each.
        made: the folder that it has made.
        said: what it has said.
    """

    def __init__(
        self, make_node: Callable[[], Node], *options: str, has_witness: bool = False
    ) -> None:
        nodes = [make_node() for _ in HOSTS]
        self.made = nodes[0].folder / "setup"
        hosts = (*HOSTS[:2], "--witness", HOSTS[2]) if has_witness else HOSTS
        first, remoting = free_port(4, HOSTS), free_port(1, HOSTS)
        self.peer_port = first
        self.consume_port = first + 2
        self.name_servers = ";".join(f"{host}:{remoting}" for host in HOSTS)
        done = run_command(
            "config", "init", *hosts, "--output", str(self.made), "--user", SHOP,
            "--port", str(first), "--rocketmq-port", str(remoting), *options,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self.said = done.stdout
        members = []
        for number, node in enumerate(nodes):
            _put(self.made / f"n{number}", node)
            members.append(Member(node, f"n{number}"))
            members[-1].start()
        wait_heard(members)
        self.group = Group(members)

    @property
    def certificates(self) -> Path:
        """What RocketMQ's clients trust."""
        return self.made / "certificates.pem"

    def addresses(self, user: str) -> list[str]:
        """Addresses for our own clients, with the keys of a user."""
        keys = self.made / "clients" / f"{user}.keys"
        return [f"tcp://{host}:{self.consume_port}?keys={keys}" for host in HOSTS]

    def secret(self, user: str) -> str:
        """With which a user of RocketMQ's clients signs."""
        return (self.made / "clients" / f"{user}.secret").read_text().strip()

    def let_users_in(self) -> Member:
        """As the page says, on the member that leads; that one."""
        for member in self.group.members:
            member.node.wait_ready()

        def applied() -> Member | None:
            leader = self.group.leader()
            done = run_command("access", "apply", str(self.made), "--address", leader.address)
            # Who leads no more says who does, and whoever typed it asks there.
            assert done.returncode == 0 or not leader.leads, done.stderr
            return leader if done.returncode == 0 else None

        return wait_until(applied, "users to be let in")


def _put(made: Path, node: Node) -> None:
    """A host's files in the place of ``/etc/ledgermq``, and its folders in that of others."""
    place = node.folder / "etc"
    shutil.copytree(made, place)
    sizes = "\n".join(f"{key} = {value}" for key, value in SIZES.items())
    text = (place / "ledgermq.toml").read_text()
    for told, here in (
        ("/etc/ledgermq", str(place)),
        ('"/var/lib/ledgermq"', f'"{node.root}"\n{sizes}'),
        ("[listen]", f'[listen]\nruntime_dir = "{node.runtime}"'),
    ):
        # No client comes to a witness.
        text = text if told in text else f"{text}\n{told}\n"
        text = text.replace(told, here)
    node.config.write_text(text)
