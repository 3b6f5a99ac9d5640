"""Own certificate of a raft process: made for one life, told to members, never on a disk."""

from __future__ import annotations

import os
import secrets
import ssl
import subprocess
from collections.abc import Iterable

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import NodeId

_NO_CHECK_TIME = 0x200000
"""OpenSSL's ``X509_V_FLAG_NO_CHECK_TIME``: a certificate that was told for this life of its owner
has no other time, and members' clocks may differ."""

_DAYS = "3650"


class OwnCertificate:
    """The key and the certificate, once they are there; the program ``openssl`` makes them.

    Attributes:
        failure: why there will be none; empty as long as there may.
    """

    def __init__(self, node: NodeId) -> None:
        """Nothing is made yet."""
        self.failure = ""
        self._node = node
        self._making: subprocess.Popen[bytes] | None = None
        self._pem = b""
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
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
        # The key is read by a path, and is in no file system.
        descriptor = os.memfd_create("raft-certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, self._pem)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        for certificate in believed:
            context.load_verify_locations(cadata=certificate)
        if is_server:
            context.num_tickets = 0
        return context

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
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:prime256v1", "-nodes", "-days", _DAYS,
            "-subj", f"/CN={name}", "-keyout", "-", "-out", "-",
        ]  # fmt: skip
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
        self._pem = printed
        self._der = ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)])
