"""Where results are kept: a folder, or an object store (S3, Google Cloud Storage, Azure) through obstore.

A result's *location* is the plain path of a file, or the URL of an object. Neither ever holds a credential: those come
from the environment of the process that opens the store, under the names that each provider's own tools use.

Everything here is synchronous and may block; whoever runs an event loop calls it in a thread.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol
from urllib.parse import urlsplit

import platformdirs

from opledger.edges.files import (
    Gone,
    ResultFolder,
    digest_of,
    file_name,
    go_on,
    private_folder,
    remove_spare,
    sweep_folder,
    write_partial,
)
from opledger.errors import ConfigWrong, Refused, StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PIECE: Final = 5 * 1024 * 1024
"""Bytes of one part of an upload, and of one ranged read. S3 takes no smaller ones."""

MOST_PARTS: Final = 9_000
"""Most parts of one upload; a very large file has larger ones. S3 takes 10,000."""

AT_ONCE: Final = 2
"""Parts under way at a time. With PIECE it bounds the memory that a transfer takes."""

RETRIES: Final = 3
"""Tries of one request after the first, for what passes by itself."""

SCHEMES: Final = ("s3", "gs", "az", "memory")
SETTING: Final = "OPLEDGER_RESULTS"
_HINT: Final = (
    "{} must be the path of a folder, or a URL such as s3://BUCKET/FOLDER, gs://… or az://CONTAINER/…; "
    "credentials, region and endpoint come from the environment and never stand in it"
)
_PROBE: Final = ".opledger-check"
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,99}")
_PART: Final = re.compile(r"(?!\.+$)[A-Za-z0-9._=-]{1,128}")
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})


class ResultStore(Protocol):
    """A place for results: each is written once, whole or not at all, and never changed."""

    @property
    def where(self) -> str:
        """The place as people write it, without secrets."""

    @property
    def scratch(self) -> Path:
        """Where `temporary` is, or will be. Asks nobody and makes nothing."""

    def temporary(self) -> Path:
        """Return a folder on this machine for what is not whole yet.

        Raises StoreUnavailable where nothing could be kept: then nothing need be fetched.
        """

    def sweep(self, older_than: datetime) -> int:
        """Remove unfinished files last written before `older_than`. Return how many."""

    def keep(self, path: Path, operation_id: str, suffix: str = "", *, going: Callable[[], bool] | None = None) -> str:
        """Move a whole file out of `temporary` into the store, durably, and return its location.

        While it takes long, `going` is asked whether to go on. Raises Stopped where it said no, StoreUnavailable where
        the store fails (the file then still is where it was), ValueError for names that are not fit.
        """

    def keep_bytes(self, data: bytes, operation_id: str, suffix: str = "") -> str:
        """Keep a result that is in memory; otherwise as `keep`."""

    def open(self, location: str) -> BinaryIO:
        """Open a kept result for reading.

        Raises Gone where it is not there any more though the store is, Refused for what lies outside of this store,
        StoreUnavailable where the store is out of reach; reading may raise that, too.
        """

    def check(self) -> None:
        """Raise StoreUnavailable where a result could not be kept now."""


def open_store(setting: str, scratch: Path | None = None) -> ResultStore:
    """Open the place that OPLEDGER_RESULTS names; nothing is asked of it yet.

    `scratch` is the folder on this machine for what is on its way to an object store; otherwise it lies in the user's
    cache folder. Raises ConfigWrong for what is no such place, and where obstore is needed and not installed.
    """
    scheme, colon, _ = setting.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", scheme) or "/" in scheme:
        return ResultFolder.from_setting(setting)
    if setting.startswith("file:///") and not {"?", "#", "%"} & set(setting):
        return ResultFolder.from_setting(setting.removeprefix("file://"))
    return ObjectResults.from_url(setting, scratch)


def check_lasting(setting: str) -> None:
    """Raise ConfigWrong for a place of results that is gone with the process that put them there."""
    if setting.partition(":")[0].lower() == "memory":
        raise ConfigWrong(
            "OPLEDGER_RESULTS is memory:, which keeps results in one process and only until it ends; name a folder, or "
            "an object store"
        )


class ObjectResults:
    """Results as objects: ``<url>/<last two of the id>/<operation id>.<hash><suffix>``.

    The name always has the hash of the content in it. Not every store can refuse to replace an object; so two workers
    that keep different results never write to one name, and those that keep the same one write the same bytes.
    """

    def __init__(self, url: str, store: ObjectStore, scratch: Path) -> None:
        self._url = url
        self._store = store
        self._scratch = scratch

    @classmethod
    def from_url(cls, url: str, scratch: Path | None = None) -> ObjectResults:
        """Open the store of a URL; see `open_store`."""
        scheme, bucket, prefix = read_url(url)
        try:
            import obstore  # noqa: F401 - only to see whether it is there
        except ImportError:
            raise ConfigWrong(
                "OPLEDGER_RESULTS names an object store, and obstore is not installed; "
                "install it: pip install 'opledger[objects]'"
            ) from None
        place = "/".join((f"{scheme}://{bucket}", *prefix))
        folder = scratch or platformdirs.user_cache_path("opledger") / "results"
        return cls(place, connect(scheme, bucket, "/".join(prefix)), folder.expanduser().absolute())

    @property
    def where(self) -> str:
        """The URL, as normal as it gets."""
        return self._url

    @property
    def scratch(self) -> Path:
        """The folder on this machine for what is on its way."""
        return self._scratch

    def temporary(self) -> Path:
        """Return the scratch folder, once the store has answered."""
        with self._told():
            self._read_probe()
        return private_folder(self._scratch)

    def sweep(self, older_than: datetime) -> int:
        """Remove old files from the scratch folder. Uploads that a crash broke off are for the bucket's own rules."""
        return sweep_folder(private_folder(self._scratch), older_than)

    def keep(self, path: Path, operation_id: str, suffix: str = "", *, going: Callable[[], bool] | None = None) -> str:
        """Upload a file, read it back, and only then remove it; see `ResultStore.keep`."""
        file_name(operation_id, suffix)  # raises for what is not fit
        size, digest = digest_of(path)
        key = f"{operation_id[-2:]}/{operation_id}.{digest[:16]}{suffix}"
        with self._told():
            if not self._holds(key, size, digest, going):
                self._upload(path, key, size, going)
                if not self._holds(key, size, digest, going):
                    raise StoreUnavailable(f"{self._url} took {key} and does not have it")
        remove_spare(path)
        return f"{self._url}/{key}"

    def keep_bytes(self, data: bytes, operation_id: str, suffix: str = "") -> str:
        """Keep a result that is in memory."""
        return write_partial(private_folder(self._scratch), data, lambda path: self.keep(path, operation_id, suffix))

    def open(self, location: str) -> BinaryIO:
        """Open an object for reading; see `ResultStore.open`."""
        key = location.removeprefix(f"{self._url}/")
        if key == location or not all(_PART.fullmatch(part) for part in key.split("/")):
            raise Refused(f"{location} is not in the store of results {self._url}")
        with self._told():
            try:
                size, tag = self._head(key)
            except FileNotFoundError:
                self._read_probe()
                raise Gone(f"no result is stored at {location} any more") from None
        return io.BufferedReader(_Pieces(self._pieces(key, size, tag)), buffer_size=256 * 1024)

    def check(self) -> None:
        """Write and read one small object of a fixed name."""
        import obstore

        with self._told():
            obstore.put(self._store, _PROBE, b"opledger")
            if bytes(obstore.get(self._store, _PROBE).bytes()) != b"opledger":
                raise StoreUnavailable(f"{self._url} does not give back what it was given")
        private_folder(self._scratch)

    # --- pieces ---------------------------------------------------------------------------------------------

    def _read_probe(self) -> None:
        """Make sure that the store answers us: that our object is not there is an answer, too."""
        import obstore

        try:
            obstore.get(self._store, _PROBE).bytes()
        except FileNotFoundError as error:
            if _code(error) in _NO_BUCKET:
                raise

    def _head(self, key: str) -> tuple[int, str | None]:
        import obstore

        found = obstore.head(self._store, key)
        return found["size"], found["e_tag"]

    def _holds(self, key: str, size: int, digest: str, going: Callable[[], bool] | None) -> bool:
        """Say whether the object is there, read back whole; raises StoreUnavailable where another content is."""
        try:
            found, tag = self._head(key)
        except FileNotFoundError:
            return False
        hashed = hashlib.sha256()
        if found == size:
            for piece in self._pieces(key, size, tag):
                go_on(going)
                hashed.update(piece)
        if hashed.hexdigest() != digest:
            raise StoreUnavailable(
                f"the object {self._url}/{key} is not what it should be; look at it and move it away"
            )
        return True

    def _upload(self, path: Path, key: str, size: int, going: Callable[[], bool] | None) -> None:
        """Put the file there in one step, or in parts that become an object only at the end."""
        import obstore

        def parts() -> Iterator[bytes]:
            # An error in here makes obstore call the parts off.
            while data := file.read(1024 * 1024):
                go_on(going)
                yield data

        with path.open("rb") as file:
            if size <= PIECE:
                obstore.put(self._store, key, file.read(), use_multipart=False)
            else:
                part = max(PIECE, -(-size // MOST_PARTS))
                obstore.put(self._store, key, parts(), chunk_size=part, max_concurrency=AT_ONCE)

    def _pieces(self, key: str, size: int, tag: str | None) -> Iterator[bytes]:
        """Read an object in ranges: each is short, may be tried again, and all are of one version."""
        import obstore

        for start in range(0, size, PIECE):
            options: Any = {"range": (start, min(start + PIECE, size))}
            if tag is not None:
                options["if_match"] = tag
            with self._told():
                data = bytes(obstore.get(self._store, key, options=options).bytes())
            if len(data) != options["range"][1] - start:
                raise StoreUnavailable(f"{self._url}/{key} broke off while it was read")
            yield data

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Put what goes wrong into our own words: those of the store may repeat keys and signatures."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            raise StoreUnavailable(f"results in {self._url}: {words(error)}") from None
        except (BaseError, ValueError) as error:
            raise StoreUnavailable(f"results in {self._url}: {words(error)}") from None
        except OSError as error:
            raise StoreUnavailable(f"results on their way to {self._url}: {error.strerror or error}") from None


class _Pieces(io.RawIOBase):
    """Pieces of bytes as a raw stream, for `io.BufferedReader`."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from the next piece."""
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(self._rest), len(buffer))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def read_url(url: str, setting: str = SETTING) -> tuple[str, str, tuple[str, ...]]:
    """Take a URL apart: scheme, bucket, folders. Raises ConfigWrong, which never repeats it: it may hold a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigWrong(_HINT.format(setting)) from None
    prefix = tuple(part for part in parts.path.split("/") if part)
    if parts.scheme not in SCHEMES or parts.query or parts.fragment or "?" in url or "#" in url:
        raise ConfigWrong(_HINT.format(setting))
    bucket = parts.netloc or ("test" if parts.scheme == "memory" else "")
    if not _BUCKET.fullmatch(bucket) or not all(_PART.fullmatch(part) for part in prefix):
        raise ConfigWrong(_HINT.format(setting))
    return parts.scheme, bucket, prefix


_MEMORY: dict[str, ObjectStore] = {}  # one for each name, so that all of a process see the same


def connect(scheme: str, bucket: str, prefix: str, setting: str = SETTING, *, patience: int = 60) -> ObjectStore:
    """Open a bucket; nothing is asked of it yet. One request may take `patience` seconds, tries half of that.

    Raises ConfigWrong where the environment has no fit credentials.
    """
    from datetime import timedelta

    from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

    if scheme == "memory":
        name = f"{bucket}/{prefix}"
        return _MEMORY.setdefault(name, MemoryStore())
    plain = any(os.environ.get(name, "").lower() in ("1", "true") for name in ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP"))
    how: Any = {
        "prefix": prefix or None,
        "client_options": {
            "allow_http": plain,
            "connect_timeout": timedelta(seconds=5),
            "timeout": timedelta(seconds=patience),
        },
        # A few tries for what passes; what lasts is tried again by the worker, where people can see it.
        "retry_config": {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=patience / 2)},
    }
    try:
        if scheme == "s3":
            return S3Store(bucket, **how)
        if scheme == "gs":
            return GCSStore(bucket, **how)
        return AzureStore(bucket, **how)
    except Exception as error:  # noqa: BLE001 - whatever obstore raises, its text may hold what the environment holds
        raise ConfigWrong(
            f"the object store of {setting} cannot be used ({type(error).__name__}); look at the variables in "
            "the environment that hold its credentials, region and endpoint"
        ) from None


def _code(error: Exception) -> str | None:
    found = _CODE.search(str(error))
    return found.group(1) if found else None


def words(error: Exception) -> str:
    """Say what is wrong without a word of the store's own, except for its error code and status."""
    text, code = str(error), _code(error)
    status = _STATUS.search(text)
    said = ", ".join(part for part in (code, f"status {status.group(1)}" if status else None) if part)
    kind = type(error).__name__
    if code in _NO_BUCKET:
        return f"the bucket is not there ({said})"
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or (status and status.group(1) in ("401", "403")):
        return f"access is refused ({said or kind}); look at the credentials in the environment"
    if kind == "PreconditionError":
        return "the object was replaced while it was read"
    if isinstance(error, FileNotFoundError):
        return f"the object is not there ({said or kind})"
    if said:
        return f"the store does not do it ({said})"
    if "builder error" in text:
        return "the endpoint is no https URL; plain http needs AWS_ALLOW_HTTP=true"
    return "the store cannot be reached, or there are no credentials for it in the environment"
