"""A provider that costs far less than its clients: a raw HTTP/1.1 server in a process of its own.

A job succeeds on its `polls`-th status read. Nothing is validated; every answer is written in one piece.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

RESULT: Final = b'{"rows": [1, 2, 3], "total": 3}'


class Protocol(asyncio.Protocol):
    """One connection."""

    reads: Final[defaultdict[bytes, int]] = defaultdict(int)
    created = 0
    polls = 5
    delay = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; write at once."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # Without it every answer would wait for the client's delayed acknowledgement.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waiting = b""

    def data_received(self, data: bytes) -> None:
        """Answer every whole request that has come."""
        self._waiting += data
        while True:
            end = self._waiting.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._waiting[:end]
            length = 0
            at = head.lower().find(b"content-length:")
            if at >= 0:
                length = int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self._waiting) < end + 4 + length:
                return
            self._waiting = self._waiting[end + 4 + length :]
            answer = self._answer(head)
            if Protocol.delay:
                asyncio.get_running_loop().call_later(Protocol.delay, self._write, answer)
            else:
                self._write(answer)

    def _write(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(answer)

    def _answer(self, head: bytes) -> bytes:
        method, target, _ = head.split(b"\r\n", 1)[0].split(b" ", 2)
        path = target.split(b"?", 1)[0]
        if path == b"/_reset":
            Protocol.reads.clear()
            Protocol.created = 0
            return _reply(b"{}")
        if path == b"/_stats":
            return _reply(json.dumps({"created": Protocol.created, "reads": sum(Protocol.reads.values())}).encode())
        if method == b"POST":
            Protocol.created += 1
            return _reply(b'{"id": "job_%d", "state": "queued"}' % Protocol.created, 202)
        if path.endswith(b"/result"):
            return _reply(RESULT)
        job = path.rsplit(b"/", 1)[1]
        Protocol.reads[job] += 1
        seen = Protocol.reads[job]
        state = b"succeeded" if seen >= Protocol.polls else b"running"
        return _reply(
            b'{"id": "%s", "state": "%s", "progress": {"completed": %d, "total": %d}}'
            % (job, state, min(seen, Protocol.polls), Protocol.polls)
        )


def _reply(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status,
        len(body),
        body,
    )


async def _serve(polls: int, delay: float) -> None:
    Protocol.polls, Protocol.delay = polls, delay
    server = await asyncio.get_running_loop().create_server(Protocol, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    server.close()


class Provider:
    """The server as a child process; it ends with its parent."""

    def __init__(self, polls: int = 5, delay: float = 0.0) -> None:
        self._arguments = [str(polls), str(delay)]

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(
            [sys.executable, str(Path(__file__)), *self._arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._child.stdout is not None
        self.base_url = f"http://127.0.0.1:{int(self._child.stdout.readline())}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(10)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    def ask(self, path: str) -> Any:
        """Call the back door."""
        from urllib.request import urlopen

        with urlopen(self.base_url + path) as answer:
            return json.load(answer)


CONTRACT: Final = """
name = "bench"
base_url = "{base_url}"
[auth]
kind = "none"
[create]
method = "POST"
path = "/jobs"
body = "json"
job_id = "/id"
remote_state = "/state"
[create.idempotency]
mechanism = "header"
name = "Idempotency-Key"
memory = "24h"
[[reconcile]]
strategy = "resend"
[status]
path = "/jobs/{{job_id}}"
job_id = "/id"
state = "/state"
progress = {{ completed = "/progress/completed", total = "/progress/total" }}
[status.states]
queued = ["queued"]
running = ["running"]
succeeded = ["succeeded"]
failed = ["failed"]
[poll]
first = "{gap}"
factor = 1.0
max = "{gap}"
[result]
path = "/jobs/{{job_id}}/result"
[deadlines]
create = "5m"
result = "2h"
cancel = "5m"
collect = "10m"
[limits]
concurrency = {concurrency}
"""


def contract_text(base_url: str, *, gap: str = "50ms", concurrency: int = 1000) -> str:
    """Return the contract of this provider."""
    return CONTRACT.format(base_url=base_url, gap=gap, concurrency=concurrency)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("polls", type=int)
    parser.add_argument("delay", type=float)
    chosen = parser.parse_args()
    asyncio.run(_serve(chosen.polls, chosen.delay))
