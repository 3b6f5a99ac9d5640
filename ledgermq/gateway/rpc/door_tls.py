"""TLS of the gRPC port: the operator's certificate, or one that the process makes for itself.

Clients in Java and Go speak TLS by default, and look at no certificate. So that they get in without
any preparation, a port that takes both kinds has a certificate also where the settings name none:
it says nothing about who answers, and keeps nobody out.
"""

from __future__ import annotations

import logging
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from ledgermq.model.config.settings import GrpcSection, TlsMode
from ledgermq.model.errors import ConfigError
from ledgermq.sessions.keys.tls_files import server_context

logger = logging.getLogger(__name__)

_DAYS = 3_650
"""The process has another one at its next start."""


def make_context(settings: GrpcSection) -> ssl.SSLContext | None:
    """What connections need for TLS, read from the files now; None where nobody may speak it.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    if settings.tls_mode is TlsMode.DISABLED:
        return None
    certificate, key = settings.tls_certificate_file, settings.tls_key_file
    if certificate is not None and key is not None:
        context = server_context(certificate, key, section="grpc")
    else:
        context = _own_context()
    context.set_alpn_protocols(["h2"])
    return context


def read_again(settings: GrpcSection, present: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """What connections need from now on; what they have at ``present`` if that cannot be read."""
    if settings.tls_certificate_file is None:
        return present
    try:
        return make_context(settings)
    except ConfigError as error:
        logger.warning("certificate for gRPC stays the one that was read before: %s", error)
        return present


def _own_context() -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ledgermq")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # The library reads files alone; they are gone when it has.
    with tempfile.TemporaryDirectory(prefix="ledgermq-grpc-") as folder:
        paths = Path(folder) / "node.pem", Path(folder) / "node.key"
        for path, content in zip(paths, (made.public_bytes(Encoding.PEM), secret), strict=True):
            path.write_bytes(content)
        return server_context(*paths, section="grpc")
