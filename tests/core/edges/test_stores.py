from __future__ import annotations

import hashlib
import os
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from opledger.edges import stores
from opledger.edges.files import Gone, Partial, ResultFolder, Stopped
from opledger.edges.stores import PIECE, ResultStore, open_store
from opledger.errors import ConfigWrong, Refused, StoreUnavailable
from tests.support.objects import KEY, S3, SECRET, s3_server

ID = "op_01JD7Q3M5K8W9X2Y4Z6A7B8C9D"
BIG = bytes(range(256)) * (PIECE // 100)  # more than two pieces, and no whole number of them


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    """One S3 server for all tests here."""
    with s3_server() as running:
        yield running


@pytest.fixture
def s3(server: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """The server, with an empty bucket and its credentials in the environment."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.empty()
    return server


@pytest.fixture(params=["folder", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ResultStore:
    """Each kind of store, empty."""
    if request.param == "folder":
        return open_store(str(tmp_path / "results"))
    if request.param == "memory":
        return open_store(f"memory://{tmp_path.name}-{os.getpid()}/deep", tmp_path / "scratch")
    s3: S3 = request.getfixturevalue("s3")
    return open_store(f"s3://{s3.bucket}/deep/results", tmp_path / "scratch")


def written(store: ResultStore, data: bytes) -> Path:
    """A whole file in the store's temporary folder."""
    partial = Partial(store.temporary())
    partial.write(data)
    return partial.close()


def content(store: ResultStore, location: str) -> bytes:
    """Read through the front door."""
    with store.open(location) as file:
        return file.read()


@pytest.mark.parametrize("data", [b"", b"data", BIG], ids=["empty", "small", "big"])
def test_what_is_kept_is_read_back(store: ResultStore, data: bytes) -> None:
    """Small results go up in one step and big ones in parts; nobody can tell afterwards, and no scratch is left."""
    path = written(store, data)
    location = store.keep(path, ID, ".csv")
    assert location.startswith(f"{store.where}/9D/{ID}")
    assert location.endswith(".csv")
    assert hashlib.sha256(content(store, location)).digest() == hashlib.sha256(data).digest()
    assert list(store.temporary().iterdir()) == []


def test_nothing_is_ever_replaced(store: ResultStore) -> None:
    """An accepted result is evidence: the same content again is the same place, another content another place."""
    first = store.keep_bytes(b"data", ID, ".json")
    second = store.keep_bytes(b"xata", ID, ".json")
    assert first != second
    assert (store.keep_bytes(b"data", ID, ".json"), store.keep_bytes(b"xata", ID, ".json")) == (first, second)
    assert (content(store, first), content(store, second)) == (b"data", b"xata")
    assert list(store.temporary().iterdir()) == []


def test_a_result_that_is_gone_is_told_from_a_store_that_is(store: ResultStore) -> None:
    """The one is somebody's doing, the other passes."""
    location = store.keep_bytes(b"data", ID)
    with pytest.raises(Gone, match="any more"):
        store.open(location.replace("/9D/", "/9E/"))


def test_only_results_can_be_opened(store: ResultStore) -> None:
    """A location in a record is not a way to read whatever there is."""
    store.keep_bytes(b"data", ID)
    for place in (f"{store.where}/../../secret", "s3://other/9D/x", "/etc/passwd", f"{store.where}x/9D/y", "x"):
        with pytest.raises(Refused, match="is not in the"):
            store.open(place)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "op_1\n"])
def test_names_cannot_lead_elsewhere(store: ResultStore, name: str) -> None:
    """What comes from a record must not choose the place."""
    with pytest.raises(ValueError, match="not fit"):
        store.keep_bytes(b"x", name)
    assert list(store.temporary().iterdir()) == []


def test_old_scratch_is_swept(store: ResultStore) -> None:
    """Crashes leave files on this machine, whatever kind the store is."""
    old, new = (store.temporary() / name for name in ("old.part", "new.part"))
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    for path, age in ((old, 3600), (new, 10)):
        path.write_bytes(b"x")
        os.utime(path, (now.timestamp() - age,) * 2)
    assert store.sweep(now - timedelta(minutes=30)) == 1
    assert (old.exists(), new.exists()) == (False, True)


def test_a_store_says_that_it_is_well(store: ResultStore) -> None:
    """Doctor asks before a night of results does."""
    store.check()
    store.check()


def test_an_upload_that_is_broken_off_leaves_nothing(s3: S3, tmp_path: Path) -> None:
    """Parts of it would be billed for ever, and a cut result must not look whole; the file stays for another try."""
    store = open_store(f"s3://{s3.bucket}/r", tmp_path / "scratch")
    path = written(store, BIG)
    asked = iter(range(PIECE * 3 // 2 // (1024 * 1024)))
    with pytest.raises(Stopped):
        store.keep(path, ID, going=lambda: next(asked, None) is not None)
    assert (s3.objects(), s3.uploads()) == ([], [])
    assert path.stat().st_size == len(BIG)
    location = store.keep(path, ID)
    assert [f"s3://{s3.bucket}/{key}" for key in s3.objects()] == [location]


def test_a_crash_after_the_upload_costs_no_second_one(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is fetched again then, and found to be there."""
    store = open_store(f"s3://{s3.bucket}/r", tmp_path / "scratch")
    location = store.keep_bytes(b"data", ID)
    monkeypatch.setattr(stores.ObjectResults, "_upload", None)
    assert store.keep_bytes(b"data", ID) == location


@pytest.mark.parametrize("foreign", [b"xata", b"longer data"])
def test_an_object_that_was_changed_is_not_taken_for_ours(s3: S3, tmp_path: Path, foreign: bytes) -> None:
    """What stands at a name is read back before it is believed, and is never overwritten."""
    store = open_store(f"s3://{s3.bucket}/r", tmp_path / "scratch")
    location = store.keep_bytes(b"data", ID)
    s3.ask("PUT", location.removeprefix("s3://"), foreign)
    with pytest.raises(StoreUnavailable, match="not what it should be"):
        store.keep_bytes(b"data", ID)
    assert content(store, location) == foreign


def test_an_upload_that_lost_bytes_is_not_believed(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that answers 200 is no proof yet: succeeded says that the result is there."""
    store = open_store(f"s3://{s3.bucket}/r", tmp_path / "scratch")
    real = stores.ObjectResults._upload

    def lossy(self: stores.ObjectResults, path: Path, key: str, *more: object) -> None:
        path.write_bytes(path.read_bytes()[:-1])
        real(self, path, key, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(stores.ObjectResults, "_upload", lossy)
    with pytest.raises(StoreUnavailable, match="not what it should be"):
        store.keep_bytes(b"data", ID)


def test_an_object_replaced_while_it_is_read_is_noticed(s3: S3, tmp_path: Path) -> None:
    """Half of one version and half of another is nobody's result."""
    store = open_store(f"s3://{s3.bucket}/r", tmp_path / "scratch")
    location = store.keep_bytes(BIG, ID)
    with store.open(location) as file:
        assert file.read(10) == BIG[:10]
        s3.ask("PUT", location.removeprefix("s3://"), BIG[::-1])
        with pytest.raises(StoreUnavailable, match="replaced while"):
            file.read()


def test_a_bucket_that_is_not_there_is_named(s3: S3, tmp_path: Path) -> None:
    """Found before anything is fetched for it, and told from a result that is not there."""
    store = open_store("s3://no-such-bucket/r", tmp_path / "scratch")
    for use in (store.temporary, store.check, lambda: store.open("s3://no-such-bucket/r/9D/x")):
        with pytest.raises(StoreUnavailable, match=r"s3://no-such-bucket/r: the bucket is not there"):
            use()


def test_a_server_that_is_away_is_told(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back; until then the provider is not asked for results."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    store = open_store("s3://results", tmp_path / "scratch")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.temporary()


def test_plain_http_is_only_spoken_when_asked_for(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an endpoint mistyped by one letter would send results in the clear."""
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(StoreUnavailable, match="AWS_ALLOW_HTTP"):
        open_store("s3://results", tmp_path / "scratch").temporary()


def test_no_error_repeats_a_credential(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of stores quote keys, signatures and requests; ours go into journals, logs and escalations."""
    said = []
    for endpoint in (s3.endpoint, "http://127.0.0.1:9", f"http://{KEY}:{SECRET}@127.0.0.1:9"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        try:
            open_store("s3://no-such-bucket", tmp_path / "scratch").check()
        except (ConfigWrong, StoreUnavailable) as error:
            said.append("".join(traceback.format_exception(error)))
    assert len(said) == 3
    assert not any(word in text for text in said for word in (KEY, SECRET, "Authorization", "Signature"))


@pytest.mark.parametrize(
    "url",
    [
        f"s3://{KEY}:{SECRET}@bucket/x",
        f"s3://bucket/x?secret_access_key={SECRET}",
        f"s3://bucket/x#{SECRET}",
        "s3://bucket?",
        "s3:///x",
        "s3:bucket",
        "s3://b/../x",
        "s3://bucket/a b",
        "s3://bucket:9000/x",
        f"https://{SECRET}.example/x",
        "ftp://bucket/x",
        "file://host/x",
        "file:relative",
        "s3://[::1",
    ],
)
def test_a_url_that_is_not_understood_is_refused_unseen(url: str) -> None:
    """A setting must not quietly become a folder called "s3:", nor bring a password into a message."""
    with pytest.raises(ConfigWrong, match=r"OPLEDGER_RESULTS must be") as refused:
        open_store(url)
    assert SECRET not in str(refused.value)


def test_without_obstore_the_setting_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional; most people keep results in a folder."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigWrong, match=r"opledger\[objects\]"):
        open_store("s3://bucket/x")


def test_a_folder_is_named_plainly_or_by_a_file_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either is what people write; a colon in a folder's name is none of a URL."""
    monkeypatch.chdir(tmp_path)
    for text in (str(tmp_path), f"file://{tmp_path}", ".", f"{tmp_path}/a:b", "./s3:x"):
        assert isinstance(open_store(text), ResultFolder)
    assert open_store(f"file://{tmp_path}").where == str(tmp_path)
