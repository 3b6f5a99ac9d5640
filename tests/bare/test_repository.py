"""``apt install ledgermq`` from the signed repository, in a root that has nothing of ours."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.bare.bare_root import BareRoot, Suite
from tests.boot import root
from tests.boot.repository import Repository, signing_key

pytestmark = [
    pytest.mark.bare,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("LEDGERMQ_BARE_LONG") != "1", reason="only with LEDGERMQ_BARE_LONG=1"
    ),
]

INSTALL = """set -e
echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/unsafe-io
export DEBIAN_FRONTEND=noninteractive
/usr/lib/apt/apt-helper download-file $1/$2.sources /etc/apt/sources.list.d/ledgermq.sources
apt-get update
apt-get install --yes --no-install-recommends ledgermq
"""

CONVERSE = """set -e
cat >>/etc/ledgermq/ledgermq.toml <<SETTINGS
[listen]
grpc = "127.0.0.1:8081"
trusted_network = true
SETTINGS
install -d -o ledgermq -g ledgermq /run/ledgermq /var/lib/ledgermq
setpriv --reuid=ledgermq --regid=ledgermq --init-groups \
    ledgermq serve --config /etc/ledgermq/ledgermq.toml 2>/tmp/log &
trap 'kill $! 2>/dev/null || true' EXIT
ledgermq status --config /etc/ledgermq/ledgermq.toml --wait-ready 60 || { cat /tmp/log; exit 1; }
ledgermq status --config /etc/ledgermq/ledgermq.toml --json
ledgermq send orders 'hello from a package'
ledgermq receive orders
/usr/lib/ledgermq/bin/python3 - <<PROGRAM
$2
PROGRAM
kill -TERM $!
wait $!
trap - EXIT
ledgermq store check /var/lib/ledgermq
"""

ASK_GRPC = """
import ssl
import grpc
from ledgermq.gateway.rpc.definition import SERVICE, make, message_class

with grpc.insecure_channel("127.0.0.1:8081") as channel:
    ask = channel.unary_unary(
        f"/{SERVICE}/QueryRoute",
        request_serializer=lambda one: one.SerializeToString(),
        response_deserializer=message_class("QueryRouteResponse").FromString,
    )
    asked = make("QueryRouteRequest", topic={"name": "orders"})
    told = ask(asked, metadata=(("x-mq-client-id", "bare"),), timeout=60)
    print("grpc told of queues:", bool(told.message_queues))
print("grpc speaks TLS:", "BEGIN" in ssl.get_server_certificate(("127.0.0.1", 8081)))
"""

UPDATE = "apt-get update -o APT::Update::Error-Mode=any 2>&1 || echo refused"
VERSION = "dpkg-query --show --showformat '${Version}' ledgermq"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *_values: object) -> None:
        """Nothing: what was asked for is of no interest."""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    """An empty one, which a web server on the loopback interface gives out."""
    served = partial(_Quiet, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), served) as server, signing_key() as keys:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/ledgermq"
            yield Repository(tmp_path / "ledgermq", url, keys)
        finally:
            server.shutdown()
            thread.join()


def test_apt_installs_a_node_that_serves_and_takes_nothing_that_another_key_has_signed(
    bare_root: BareRoot, suite: Suite, repository: Repository
) -> None:
    if suite.name not in root.packaged_suites():
        pytest.skip(f"no package is built for {suite.title}")
    built = root.package(suite.name)
    repository.add(built)

    bare_root.run(INSTALL.replace("$1", repository.url).replace("$2", suite.name), timeout_s=900)
    version = bare_root.run(VERSION)
    told = bare_root.run(CONVERSE.replace("$2", ASK_GRPC), timeout_s=300)
    trusted = bare_root.run(UPDATE)
    with signing_key() as others:
        Repository(repository.folder, repository.url, others).add(built)
    strange = bare_root.run(UPDATE)

    assert root.packaged_suites()[suite.name] in version
    assert "\nhello from a package\n" in told
    assert '"kernel": "compiled"' in told
    assert "grpc told of queues: True\ngrpc speaks TLS: True\n" in told
    assert "refused" not in trusted
    assert "refused" in strange
