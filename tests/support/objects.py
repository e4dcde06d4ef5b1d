"""An S3 server on this machine, for the tests of result stores: moto's, behind real sockets."""

from __future__ import annotations

import logging
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

KEY, SECRET = "AKIATESTTESTTESTTEST", "s3cr3t-of-the-bucket-never-shown"


@dataclass(frozen=True, slots=True)
class S3:
    """The server: where it is, and what a process needs in its environment to use it."""

    endpoint: str
    bucket: str
    server: Any

    @property
    def environment(self) -> dict[str, str]:
        """Credentials, region and endpoint under the names that AWS gives them."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Ask the server directly; it looks at who asks, and does not check the signature."""
        who = f"AWS4-HMAC-SHA256 Credential={KEY}/20261129/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
        headers = {"Authorization": who, "Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"{self.endpoint}/{path}", data=body, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            content: bytes = answer.read()
            return content

    def objects(self) -> list[str]:
        """What lies in the bucket."""
        return _between(self.ask("GET", self.bucket).decode(), "Key")

    def empty(self) -> None:
        """Forget everything but the bucket. What moto keeps is of the whole process, not of this server."""
        self.ask("POST", "moto-api/reset")
        self.ask("PUT", self.bucket)

    def uploads(self) -> list[str]:
        """Uploads in parts that were begun, and neither ended nor called off."""
        return _between(self.ask("GET", f"{self.bucket}?uploads").decode(), "UploadId")


def _between(text: str, tag: str) -> list[str]:
    return [part.split(f"</{tag}>")[0] for part in text.split(f"<{tag}>")[1:]]


@contextmanager
def s3_server(bucket: str = "results") -> Iterator[S3]:
    """Run a server with one empty bucket."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what moto and botocore say of themselves
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
    try:
        host, port = server.get_host_and_port()
        made = S3(f"http://{host}:{port}", bucket, server)
        made.empty()
        yield made
    finally:
        server.stop()
