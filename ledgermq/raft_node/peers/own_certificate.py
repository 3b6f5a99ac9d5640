"""Own certificate of a raft process: made for one life, told to members, never on a disk."""

from __future__ import annotations

import secrets
import ssl
import subprocess
from collections.abc import Iterable

from ledgermq.members.direct_connection import RAFT_PROTOCOL, tls_context
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import NodeId

_DAYS = "3650"


class OwnCertificate:
    """Certificate and key, which are there once the program ``openssl`` has made them.

    Attributes:
        failure: why there will be none; empty as long as there may.
        pem: both, for this node's writer; empty while they are being made.
    """

    def __init__(self, node: NodeId, *, knows_writers: bool) -> None:
        """Nothing is made yet.

        Args:
            knows_writers: it is said to others that writers may connect, too.
        """
        self._knows_writers = knows_writers
        self.failure = ""
        self._node = node
        self._making: subprocess.Popen[bytes] | None = None
        self.pem = b""
        self._der = b""

    def look(self) -> bytes:
        """The certificate (DER); empty while it is being made, which the first look begins."""
        if self._der or self.failure:
            return self._der
        if self._making is None:
            self._begin()
        elif self._making.poll() is not None:
            self._take(self._making)
        return self._der

    def context(self, believed: Iterable[bytes], *, is_server: bool) -> ssl.SSLContext:
        """TLS 1.3 that shows this certificate and believes these (DER) alone; see ``look``."""
        protocols = (RAFT_PROTOCOL,) if self._knows_writers else ()
        return tls_context(self.pem, believed, protocols, is_server=is_server)

    def check(self, certificate: bytes) -> None:
        """Go on where ``certificate`` can be believed; see ``look``.

        Raises:
            ProtocolError: it is none.
        """
        try:
            self.context([certificate], is_server=True)
        except OSError as error:
            # Of OpenSSL's for what is none; of the system's where no descriptor is left.
            raise ProtocolError("certificate not taken", reason=error.strerror) from error

    def close(self) -> None:
        """End the program, if it runs."""
        if self._making is not None:
            self._making.kill()
            self._making.communicate()
            self._making = None

    def _begin(self) -> None:
        # A name of its own for each life: two certificates of one name are taken for one another.
        name = f"{self._node}-{secrets.token_hex(8)}"
        command = [
            *("openssl", "req", "-x509", "-nodes", "-days", _DAYS, "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", "-", "-out", "-"),
        ]
        try:
            self._making = subprocess.Popen(  # noqa: S603 - openssl, with words of our own
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self.failure = f"openssl, which makes certificates, was not started: {error.strerror}"

    def _take(self, making: subprocess.Popen[bytes]) -> None:
        # It has ended, and what it has printed fits into a pipe.
        printed, _ = making.communicate()
        self._making = None
        text = printed.decode("ascii", "replace")
        begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
        if making.returncode or begin < 0 or end < 0:
            self.failure = f"openssl made no certificate: status {making.returncode}"
            return
        self.pem = printed
        self._der = ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)])
