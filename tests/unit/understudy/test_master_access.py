"""Access to a master that lets in none but its accounts, or has TLS at its remoting port."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.model.errors import ConfigError, ProtocolError, UnreachableError
from ledgermq.understudy import master_questions
from ledgermq.understudy.master_access import KEY_FILE_SIZE_MAX, MasterAccess, read_access
from ledgermq.understudy.master_questions import MasterQuestions
from tests.certificates import make_certificate
from tests.unit.understudy.small_master import SmallMaster
from tests.unit.understudy.test_understudy import master_of, store

__all__ = ["store"]

SECRET = "00123456"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: bytes, mode: int = 0o600) -> Path:
        path = tmp_path / "tools.yml"
        path.write_bytes(content)
        path.chmod(mode)
        return path

    return written


@pytest.mark.parametrize(
    "content",
    [
        b"accessKey: follower\nsecretKey: 00123456\n",
        b"# mqadmin's\r\nsecretKey: '00123456'\r\naccessKey: \"follower\"\r\nother: 7\r\n",
    ],
)
def test_a_file_of_mqadmin_is_read_with_its_digits_as_a_text(content: bytes, write: Write) -> None:
    access = read_access(write(content), None)

    assert (access.key, access.secret) == ("follower", SECRET)
    assert SECRET not in repr(access)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"accessKey: follower\nsecretKey: 00123456\n", 0o640, "others can read"),
        (b"accessKey: follower\n", 0o600, "no access key"),
        (b"accessKey: follower\nsecretKey: ''\n", 0o600, "no access key"),
        (b"accessKey: follower\nsecretKey: [00123456]\n", 0o600, "no access key"),
        (b"follower 00123456\n", 0o600, "no access key"),
        (b"secretKey: {00123456\n", 0o600, "no access key"),
        (b"\xff\xfesecretKey: 00123456", 0o600, "no access key"),
        (b"", 0o600, "no access key"),
        (b"a" * (KEY_FILE_SIZE_MAX + 1), 0o600, "too large"),
    ],
)
def test_a_file_that_is_none_is_refused_without_what_is_in_it(
    content: bytes, mode: int, said: str, write: Write
) -> None:
    path = write(content, mode)

    with pytest.raises(ConfigError, match=said) as raised:
        read_access(path, None)
    assert str(path) in str(raised.value)
    assert SECRET not in str(raised.value)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--access-key-file"):
        read_access(tmp_path / "gone", None)
    with pytest.raises(ConfigError, match="--ca-file"):
        read_access(None, tmp_path / "gone")


def asked(master: SmallMaster, access: MasterAccess) -> int:
    """Where the master's log ends, as it says to who comes so."""
    with closing(MasterQuestions(master.remoting, access)) as questions:
        # With fields of its own, and without.
        assert questions.queue_end("orders", 0) == 0
        return questions.reach().end


def test_a_master_with_accounts_answers_who_signs(store: Path) -> None:
    with master_of(store) as master:
        master.secrets = {"follower": SECRET}

        assert asked(master, MasterAccess("follower", SECRET)) == master.end
        for wrong in (MasterAccess(), MasterAccess("follower", "?"), MasterAccess("?", SECRET)):
            with pytest.raises(ProtocolError, match="no account of ours"):
                asked(master, wrong)


def test_a_master_with_tls_answers_who_trusts_its_certificate(store: Path, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    stranger, _ = make_certificate(tmp_path / "other")
    with master_of(store) as master:
        master.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        master.tls.load_cert_chain(certificate, key)

        assert asked(master, read_access(None, certificate)) == master.end
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            asked(master, read_access(None, stranger))
        # It takes for a handshake what is none, and with OpenSSL 3.5 says so.
        with pytest.raises(UnreachableError, match="does not answer"):
            asked(master, MasterAccess())


def test_a_master_without_tls_is_not_asked_by_tls(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_questions, "CONNECT_TIMEOUT_S", 0.5)
    certificate, _ = make_certificate(tmp_path)
    with master_of(store) as master, pytest.raises(UnreachableError, match="not reached"):
        asked(master, read_access(None, certificate))
