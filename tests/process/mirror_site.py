"""A group whose members answer mirrors over TLS, and a mirror of it."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ledgermq.members.mirrors.mirror_report import MirrorReport, read_mirror_report
from tests.certificates import make_certificate
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import SIZES, Group, Member, free_port, make_group

NAME = "site-b"
TOKEN = "0123456789abcdef0123456789abcdef"


class Source:
    """The group, where its members answer, and what a mirror needs."""

    def __init__(
        self, make_node: Callable[[], Node], folder: Path, *, console: bool = False, **settings: Any
    ) -> None:
        self._console = str(console).lower()
        self.certificate, self._key = make_certificate(folder)
        self._tokens = folder / "tokens"
        self._tokens.write_text(f"{NAME} {TOKEN} mirror\n")
        self._tokens.chmod(0o600)
        self.token = folder / "token"
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        self.urls: list[str] = []
        self.group: Group = make_group(
            make_node, ack="majority-fsync", prepare=self.let_answer, **settings
        )

    def let_answer(self, member: Member) -> None:
        """Have a member answer mirrors from its next start on; it is one of ``urls``."""
        port = free_port()
        self.urls.append(f"https://127.0.0.1:{port}")
        text = member.node.config.read_text()
        http = (
            f'[http]\ntls_certificate_file = "{self.certificate}"\ntls_key_file = "{self._key}"\n'
            f'tokens_file = "{self._tokens}"\nconsole = {self._console}\n'
        )
        member.node.config.write_text(
            text.replace("[listen]", f'[listen]\nhttp = "127.0.0.1:{port}"') + http
        )

    def mirror(self, node: Node, name: str = "m0", **mirror: Any) -> Member:
        """A mirror of it that was started."""
        self.configure_mirror(node, name, **mirror)
        made = Member(node, name)
        made.start()
        return made

    def configure_mirror(
        self,
        node: Node,
        name: str = "m0",
        *,
        scrub: Mapping[str, object] | None = None,
        **mirror: Any,
    ) -> None:
        """Write the settings of a mirror."""
        node.configure(
            node={"self_id": name},
            store=dict(SIZES),
            supervision={"restarts_max": 1_000},
            scrub=dict(scrub or {}),
            mirror={
                "sources": self.urls,
                "token_file": str(self.token),
                "ca_file": str(self.certificate),
                **mirror,
            },
        )

    def tell_mark(self, position: int) -> list[tuple[int, bytes]]:
        """Say to each member, as a mirror does, what is held; statuses and contents of answers."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        found = []
        for url in self.urls:
            address = url.removeprefix("https://")
            connection = http.client.HTTPSConnection(address, timeout=30, context=context)
            headers = {"authorization": f"Bearer {TOKEN}"}
            connection.request("POST", f"/mirror/v1/mark?position={position}", headers=headers)
            answer = connection.getresponse()
            found.append((answer.status, answer.read()))
            connection.close()
        return found

    def wait_copied(self, mirror: Member) -> None:
        """Until the mirror has dispatched all that the group has committed now."""
        self.group.wait_equal()
        wanted = self.group.up()[0].cursors()["committed"]["position"]

        def is_there() -> bool:
            # Asked once: between two questions a node that was killed may be gone.
            status = mirror.status()
            if status is None:
                return False
            cursors = status["cursors"]
            dispatched = int(cursors["committed"]["position"]) - cursors["not_dispatched_bytes"]
            return dispatched >= wanted

        try:
            wait_until(is_there, "the mirror to have all")
        except AssertionError:
            print(f"wanted {wanted}; {json.dumps(report_of(mirror))}")
            print(json.dumps(mirror.status()))
            raise


def report_of(mirror: Member) -> MirrorReport | None:
    """What it has told last."""
    return read_mirror_report(mirror.node.runtime / "mirror")
