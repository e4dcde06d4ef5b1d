from __future__ import annotations

import os
import stat
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from opledger.edges.signing import is_signed, load_key, make_key
from opledger.errors import ConfigWrong
from opledger.rules import notes
from opledger.rules.notes import Note

ORIGIN = "opledger/ldg_01JC0000000000000000000000"
NOTE = Note(ORIGIN, 1, bytes(32), 1, datetime(2026, 1, 2, tzinfo=UTC), 1, 1, 0, notes.GENESIS)


def test_a_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    """Who could read it could sign; who replaced it would make all notes before worthless."""
    path = tmp_path / "new" / "keys" / "ldg.key"
    assert load_key(path) is None
    os.umask(old := os.umask(0))
    try:
        os.umask(0o777)
        made = make_key(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    again, loaded = make_key(path), load_key(path)
    assert loaded is not None
    assert made.public == again.public == loaded.public
    assert [one.name for one in path.parent.iterdir()] == ["ldg.key"]
    assert str(path) in repr(made)
    assert made.public.hex() not in repr(made)


def test_of_many_that_make_it_at_once_all_have_the_same(tmp_path: Path) -> None:
    """Workers start together."""
    barrier, keys = threading.Barrier(4), []

    def make() -> None:
        barrier.wait()
        keys.append(make_key(tmp_path / "one.key"))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({key.public for key in keys}) == 1
    assert len(keys) == 4


def test_only_the_key_itself_has_signed(tmp_path: Path) -> None:
    """Not another key, not for another ledger, not with a word changed."""
    key, other = make_key(tmp_path / "a.key"), make_key(tmp_path / "b.key")
    signed = notes.read(key.sign(NOTE.text(), ORIGIN))
    assert is_signed(signed, key.public)
    assert not is_signed(signed, other.public)
    changed = replace(NOTE, events=2)
    forged = notes.sign_off(changed.text(), ORIGIN, signed.key_id, signed.signature)
    assert not is_signed(notes.read(forged), key.public)
    elsewhere = replace(NOTE, origin=ORIGIN[:-1] + "1")
    forged = notes.sign_off(elsewhere.text(), elsewhere.origin, notes.key_id(elsewhere.origin, key.public), bytes(64))
    assert not is_signed(notes.read(forged), key.public)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660])
def test_a_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    """It may have signed what its owner never saw; the message says what to do."""
    path = tmp_path / "it's.key"
    make_key(path)
    path.chmod(mode)
    with pytest.raises(ConfigWrong, match=rf"open to other users \(mode {mode:04o}\).*chmod 600 '.*it'\"'\"'s.key'"):
        load_key(path)
    with pytest.raises(ConfigWrong, match="open to other users"):
        make_key(path)


RSA = """-----BEGIN PRIVATE KEY-----
MIIBVAIBADANBgkqhkiG9w0BAQEFAASCAT4wggE6AgEAAkEAuVzHx7FkGZ3tGwNn
-----END PRIVATE KEY-----
"""


@pytest.mark.parametrize("text", ["", "x", RSA, "-----BEGIN PRIVATE KEY-----\n\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key(tmp_path: Path, text: str) -> None:
    """A damaged key is never replaced by a new one in silence."""
    path = tmp_path / "x.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigWrong, match="is no Ed25519 key"):
        load_key(path)
    assert path.read_text() == text


def test_a_key_that_is_no_file(tmp_path: Path) -> None:
    """A folder or a pipe must not hang or confuse a worker."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigWrong, match="is not a plain file"):
            load_key(path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigWrong, match=r"the signing key .* cannot be"):
        make_key(tmp_path / "file" / "x.key")
