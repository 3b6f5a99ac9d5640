"""Sends one message as RocketMQ's clients do, over TLS and signed; says with which code it ended.

Words: address of the port, file of certificates, name of the user, its secret, topic, body.
"""

from __future__ import annotations

import ssl
import sys
from contextlib import closing

from ledgermq.remoting.codes import RequestCode
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import NOW_MS


def main(words: list[str]) -> None:
    address, certificates, user, secret, topic, body = words
    trusted = ssl.create_default_context(cafile=certificates)
    values = ("p", topic, "TBW102", 4, 0, 0, NOW_MS, 0, "", 0, "false")
    fields = dict(zip("abcdefghijk", values, strict=True))
    with closing(RemotingClient(address, signs=(user, secret), tls=trusted)) as client:
        print(client.ask(RequestCode.SEND_MESSAGE_V2, fields, body.encode()).code)


if __name__ == "__main__":
    main(sys.argv[1:])
