"""T17: whatever an answer says of another address, no credential goes there, and no private address is reached (I25).

5 redirects × 16 ways to name another place × 6 calls × 4 kinds of credentials, over real connections; then the same
places named by the body of an answer, with a contract that lists them, and names that resolve to something else the
second time.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import ipaddress
import shutil
import ssl
import subprocess
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import pytest

from opledger.edges import addresses
from opledger.edges.http import Http
from opledger.edges.secrets import SecretResolver
from opledger.errors import ConfigWrong, Refused
from opledger.rules import answers, lookups, requests
from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Download, Failure, Fate, Request
from opledger.rules.contract import Auth, Contract
from opledger.rules.files.contract import parse
from opledger.rules.model import Operation, State
from opledger.worker import fetching
from tests.core.edges.wire import NOON, StillClock
from tests.core.rules.operations import operation
from tests.support.network import Loop, Network, Seen

T = TypeVar("T")

KEY: Final = "Canary-Key-7f3c9a51e0d2"
EXTRA: Final = "Canary-Extra-b864c1d09f"
IDEM: Final = "idem_canary_5d1e"
OURS: Final = "93.184.216.34"
EVIL: Final = "151.101.1.195"

SOURCE: Final = """\
name = "jobs"
base_url = "http://api.example.com"
result_hosts = []
[headers]
X-Extra = "{secret.extra}"
[secrets]
extra = "env:EXTRA"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
status_url = "header:location"
[create.idempotency]
mechanism = "header"
name = "Idempotency-Key"
memory = "1h"
[[reconcile]]
strategy = "resend"
[[reconcile]]
strategy = "list"
path = "/jobs"
query = { token = "{token}" }
items = "/data"
item_id = "/id"
match = 'item.token == operation.token'
next_page = "/next"
[status]
path = "/jobs/{job_id}"
state = "/state"
[status.states]
running = ["running"]
succeeded = ["done"]
[cancel]
method = "DELETE"
path = "/jobs/{job_id}"
[result]
url = "/result_url"
format = "binary"
"""

CREDENTIALS: Final = {
    "bearer": Auth("bearer", "env:KEY"),
    "header": Auth("header", "env:KEY", "X-Api-Key"),
    "query": Auth("query", "env:KEY", "api_key"),
    "basic": Auth("basic", "env:KEY", username="me"),
}

#: name of the relation -> the place, and what its host is called for `result_hosts` (None: cannot be listed)
PLACES: Final[dict[str, tuple[str, str | None]]] = {
    "same origin": ("/elsewhere", None),
    "scheme down": ("http://api.example.com/x", "api.example.com"),
    "port": ("http://api.example.com:8080/x", "api.example.com:8080"),
    "subdomain": ("http://files.api.example.com/x", "files.api.example.com"),
    "suffix": ("http://api.example.com.evil.net/x", "api.example.com.evil.net"),
    "userinfo": ("http://api.example.com@evil.net/x", "evil.net"),
    "scheme-relative": ("//evil.net/x", "evil.net"),
    "backslash": ("http://evil.net\\@api.example.com/x", "evil.net"),
    "look-alike": ("http://\u0430pi.example.com/x", "xn--pi-7kc.example.com"),
    "literal": (f"http://{EVIL}/x", EVIL),
    "decimal": ("http://2130706433/x", "2130706433"),
    "mapped": ("http://[::ffff:169.254.169.254]/x", None),
    "link-local": ("http://169.254.7.7/x", "169.254.7.7"),
    "metadata": ("http://metadata.internal/latest/meta-data/iam", "metadata.internal"),
    "rebinding": ("http://rebinding.net/x", "rebinding.net"),
    ".localhost": ("http://api.localhost/x", "api.localhost"),
}
PRIVATE: Final = frozenset({"decimal", "mapped", "link-local", "metadata", ".localhost"})
NAMES: Final = {
    "api.example.com": [[OURS]],
    "files.api.example.com": [[EVIL]],
    "api.example.com.evil.net": [[EVIL]],
    "evil.net": [[EVIL]],
    "xn--pi-7kc.example.com": [[EVIL]],
    "\u0430pi.example.com": [[EVIL]],
    "metadata.internal": [["169.254.169.254"]],
    "rebinding.net": [[EVIL], ["127.0.0.1"]],
    "mixed.net": [[EVIL, "10.0.0.7"]],
    "api.localhost": [["127.0.0.1"]],
    "inside.corp": [["10.0.0.7"]],
    "proxy.example": [["192.0.9.9"]],
}
STATUSES: Final = (301, 302, 303, 307, 308)
CALLS: Final = ("create", "resend", "look-up", "observe", "cancel", "collect")

_ORIGINALS: Final = parse(SOURCE, environment={})
SECURE: Final = replace(_ORIGINALS, base_url="https://api.example.com")


class World:
    """The network, and the edge in it."""

    def __init__(self, network: Network, loop: Loop, tls: ssl.SSLContext, folder: Path) -> None:
        self.network, self.loop, self.folder = network, loop, folder
        self.secrets = SecretResolver({"KEY": KEY, "EXTRA": EXTRA})

        async def edge() -> Http:
            return Http(StillClock(), self.secrets, tls=tls)

        self.http = self.run(edge())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop."""
        return self.loop.run_until_complete(work)

    def leaks(self, seen: Seen) -> list[str]:
        """What of ours is in a request."""
        ours = {
            KEY, EXTRA, IDEM, "op_01TEST", "cookie:", "x-extra", "x-api-key", "idempotency-key", "authorization",
            "api_key", base64.b64encode(f"me:{KEY}".encode()).decode()[:20],
        }  # fmt: skip
        text = seen.raw.decode("latin-1").lower()
        return [word for word in ours if word.lower() in text]


@pytest.fixture(scope="module")
def tls_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's certificate for api.example.com, and a client that trusts it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl program to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    place = ["-subj", "/CN=api.example.com", "-addext", "subjectAltName=DNS:api.example.com", "-keyout", str(key)]
    subprocess.run([openssl, *words, *place, "-out", str(certificate)], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=str(certificate))


@pytest.fixture(scope="module")
def world(tls_pair: tuple[ssl.SSLContext, ssl.SSLContext], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One network for all cases; the environment names a proxy for everything."""
    network = Network(names=dict(NAMES), tls={(OURS, 443): tls_pair[0]})  # type: ignore[arg-type]
    loop = Loop(network)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            patch.setenv(name, "http://proxy.example:3128")
            patch.setenv(name.lower(), "http://proxy.example:3128")
        made = World(network, loop, tls_pair[1], tmp_path_factory.mktemp("results"))
        yield made
        loop.run_until_complete(made.http.aclose())
        loop.run_until_complete(network.close())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        gc.collect()


def redirect(status: int, place: str) -> bytes:
    """An answer that sends the caller elsewhere, and sets a cookie."""
    head = f"HTTP/1.1 {status} Elsewhere\r\nLocation: {place}\r\nSet-Cookie: canary=1\r\nContent-Length: 0\r\n\r\n"
    return head.encode()


def plain(body: bytes = b"ok") -> bytes:
    """An answer that is one."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)


def record(contract: Contract, state: State, **facts: Any) -> tuple[Operation, Any]:
    """An operation of this contract, and its stored request."""
    identity = {"operation_id": "op_01TESTTESTTESTTESTTEST0001", "trace_id": "0" * 31 + "1"}
    stored = requests.prepare(contract, **identity, token=IDEM, asked={"a": 1})
    op = operation(
        state,
        **{"idempotency_token": IDEM, "remote_job_id": "job_1", **facts},
        request_fingerprint=requests.fingerprint_of(contract, stored),
    )
    return op, stored


async def call(world: World, kind: str, contract: Contract) -> tuple[Answer | Failure | Download, Request]:
    """Make one call of a kind, as the worker does, and go on as it does."""
    if kind in ("create", "resend"):
        op, stored = record(contract, State.CREATE_PENDING)
        request = requests.create(op, contract, stored, resend=kind == "resend")
        return await world.http.send(request), request
    op, _ = record(contract, State.OBSERVING)
    if kind == "look-up":
        request = requests.look_up(op, contract, contract.reconcile[1])
    elif kind == "observe":
        request = requests.observe(op, contract)
    elif kind == "cancel":
        request = requests.cancel(op, contract)
    else:
        request = requests.collect(op, contract, {"result_url": "/result"}, contract.base_url)
        return await download(world, op, contract, request), request
    return await world.http.send(request), request


async def download(world: World, op: Operation, contract: Contract, request: Request) -> Answer | Failure | Download:
    """Read a result, following as the worker does."""
    attempt = SimpleNamespace(drive=SimpleNamespace(op=op), contract=contract)
    outcome = await world.http.download(request, world.folder, lambda _: None)
    for _ in range(fetching.MOST_HOPS):
        way = cast("Any", SimpleNamespace(attempt=attempt, request=request))
        onward = fetching._redirect(way, outcome)
        if onward is None:
            break
        request = onward
        outcome = await world.http.download(request, world.folder, lambda _: None)
    if isinstance(outcome, Download):
        Path(outcome.path).unlink()
    return outcome


def means(kind: str, outcome: Answer | Failure, contract: Contract) -> e.Evidence | None:
    """What the record would say."""
    op, _ = record(contract, State.OBSERVING)
    if kind in ("create", "resend"):
        told = answers.read_create(outcome, op, contract, call_id="c", answer=None, resend=kind == "resend")
    elif kind == "look-up":
        page = lookups.read_page(outcome, op, contract, lookups.Search(contract.reconcile[1]), call_id="c", answer=None)
        assert isinstance(page, answers.Reading)
        told = page
    elif kind == "observe":
        told = answers.read_status(outcome, op, contract, call_id="c", answer=None, now=NOON)
    elif kind == "cancel":
        told = answers.read_cancel(outcome, op, contract, call_id="c", answer=None)
    else:
        told = answers.read_missing_result(outcome, op, contract, call_id="c", answer=None)
    assert not told.credentials
    return told.evidence


UNDECIDED: Final = {
    "create": e.CallLost, "resend": e.Inconclusive, "look-up": e.Inconclusive, "observe": e.ReadFailed,
    "cancel": e.CallLost, "collect": e.ReadFailed,
}  # fmt: skip


def private(address: str) -> bool:
    """True for an address that only this machine or its network can reach."""
    return addresses.kind_of(address) != "public" or not ipaddress.ip_address(address).is_global


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("relation", PLACES)
def test_a_redirect_takes_nothing_along(world: World, relation: str, kind: str) -> None:
    """20 of the 1,920 cases: five statuses, four kinds of credentials. Nobody but the provider hears of them."""
    place, _ = PLACES[relation]
    base = SECURE if relation == "scheme down" else _ORIGINALS
    ours = (OURS, 443 if relation == "scheme down" else 80)
    for status in STATUSES:
        for name, auth in CREDENTIALS.items():
            contract = replace(base, auth=auth)
            world.network.forget()
            first = True

            def answer(seen: Seen, status: int = status) -> bytes:
                nonlocal first
                if first:
                    first = False
                    return redirect(status, place.encode().decode("latin-1"))
                return plain()

            world.network.answer = answer
            outcome, _ = world.run(call(world, kind, contract))
            case = f"{status} {name}"
            arrived = [seen.address for seen in world.network.seen]
            assert {address for address, _ in world.network.tried} <= {OURS}, case
            if (relation, kind) == ("same origin", "collect"):
                assert arrived == [ours, ours], case
                assert isinstance(outcome, Download)
                assert world.leaks(world.network.seen[1]) == [], case
                continue
            assert arrived == [ours], case
            assert KEY in world.network.seen[0].raw.decode() or name == "basic", case
            assert isinstance(outcome, Answer) and outcome.status == status, case
            assert isinstance(means(kind, outcome, contract), UNDECIDED[kind]), case


def test_there_are_1920_of_these_cases() -> None:
    """The figure of the test programme."""
    assert len(STATUSES) * len(PLACES) * len(CALLS) * len(CREDENTIALS) == 1920


@pytest.mark.parametrize("relation", PLACES)
def test_a_redirect_to_a_listed_host_is_followed_bare(world: World, relation: str) -> None:
    """Only by the read of a result; and what is private stays out of reach, listed or not."""
    place, host = PLACES[relation]
    base = SECURE if relation == "scheme down" else _ORIGINALS
    for status in STATUSES:
        for name, auth in CREDENTIALS.items():
            contract = replace(base, auth=auth, result_hosts=() if host is None else (host,))
            world.network.forget()
            world.network.answer = lambda seen, status=status: (  # type: ignore[misc]
                redirect(status, place.encode().decode("latin-1")) if b"/result" in seen.raw else plain(b"a,b\n")
            )
            outcome, _ = world.run(call(world, "collect", contract))
            case = f"{status} {name}"
            assert not [address for address, _ in world.network.tried if private(address)], case
            assert not [address for address, _ in world.network.tried if address == "192.0.9.9"], case
            for seen in world.network.seen[1:]:
                assert world.leaks(seen) == [], case
            if relation in PRIVATE:
                assert not isinstance(outcome, Download), case
            elif relation in ("port", "subdomain", "suffix", "scheme-relative", "literal", "rebinding", "same origin"):
                assert isinstance(outcome, Download), case
            else:
                assert isinstance(outcome, Answer) and outcome.status == status, case


NAMED: Final = [
    *PLACES.items(),
    *{
        f"more {index}": (place, host)
        for index, (place, host) in enumerate(
            [
                ("http://evil.net#@api.example.com/", "evil.net"),
                ("http://evil.net?@api.example.com/", "evil.net"),
                ("http://api.example.com:80@evil.net/", "evil.net"),
                ("http:evil.net/x", "evil.net"),
                ("http:///evil.net/x", "evil.net"),
                ("///evil.net/x", "evil.net"),
                ("/\\evil.net/x", "evil.net"),
                ("\\\\evil.net/x", "evil.net"),
                ("http://evil.net:80\\@api.example.com/", "evil.net"),
                ("http://api.example.com\t.evil.net/", None),
                ("http://api.example.com\n.evil.net/", None),
                ("ht\ntp://evil.net/", "evil.net"),
                (" http://evil.net/", "evil.net"),
                ("http://EVIL.NET./x", "evil.net"),
                ("http://evil%2enet/x", None),
                ("http://evil\u3002net/x", None),
                ("http://\uff45vil.net/x", None),
                ("http://127.1/x", "127.1"),
                ("http://0/x", "0"),
                ("http://0x7f.1/x", "0x7f.1"),
                ("http://0177.0.0.1/x", "0177.0.0.1"),
                ("http://127.0.0.1./x", "127.0.0.1."),
                ("http://[::1]/x", None),
                ("http://[::]/x", None),
                ("http://[::127.0.0.1]/x", None),
                ("http://[64:ff9b::7f00:1]/x", None),
                ("http://[2002:7f00:1::]/x", None),
                ("http://[fe80::1%25eth0]/x", None),
                ("http://[fd00:ec2::254]/x", None),
                ("http://10.0.0.7/x", "10.0.0.7"),
                ("http://100.100.100.200/x", "100.100.100.200"),
                ("http://192.168.0.1/x", "192.168.0.1"),
                ("http://inside.corp/x", "inside.corp"),
                ("http://mixed.net/x", "mixed.net"),
                ("ftp://evil.net/x", "evil.net"),
                ("file:///etc/passwd", None),
                ("gopher://evil.net:25/x", "evil.net:25"),
                ("data:text/plain,x", None),
                ("http://evil.net:0/x", "evil.net:0"),
                ("http://evil.net:99999/x", None),
                ("http://evil.net:http/x", None),
                ("http://[evil.net]/x", None),
                ("http://", None),
                ("", None),
            ]
        )
    }.items(),
]


@pytest.mark.parametrize(("relation", "named"), NAMED, ids=[name for name, _ in NAMED])
@pytest.mark.parametrize("listed", [False, True])
def test_an_address_in_an_answer_takes_nothing_along(
    world: World, relation: str, named: tuple[str, str | None], listed: bool
) -> None:
    """A result's URL, a status URL, the next page of a list: resolved, compared, and read bare or not at all."""
    place, host = named
    hosts = (host,) if listed and host is not None else ()
    for name, auth in CREDENTIALS.items():
        contract = replace(_ORIGINALS, auth=auth, result_hosts=hosts)
        op, _ = record(contract, State.OBSERVING)
        world.network.forget()
        world.network.answer = lambda _: plain(b"a,b\n")
        try:
            request = requests.collect(op, contract, {"result_url": place}, "http://api.example.com/jobs/job_1")
        except Refused:
            request = None
        if request is not None:
            outcome = world.run(download(world, op, contract, request))
            assert not (listed and relation in PRIVATE and isinstance(outcome, Download))
        told = Answer(201, {"location": place}, b'{"id": "job_1", "next": 1}', NOON, "http://api.example.com/jobs")
        accepted = answers.read_create(told, op, contract, call_id="c", answer=None, resend=False).evidence
        assert isinstance(accepted, e.Accepted)
        seen_at = record(contract, State.OBSERVING, remote_refs=dict(accepted.refs or {}))[0]
        world.run(world.http.send(requests.observe(seen_at, contract)))
        try:
            page = requests.next_page(contract, contract.reconcile[1], told, {"next": place}, told.url)
        except Refused:
            page = None
        if page is not None:
            world.run(world.http.send(requests.look_up(op, contract, contract.reconcile[1], page)))
        for address, port in world.network.tried:
            assert not private(address), f"{name}: went to {address}:{port}"
        for seen in world.network.seen:
            if seen.address != (OURS, 80):
                assert world.leaks(seen) == [], name
                assert listed, name


def test_a_name_that_resolves_to_something_else_is_looked_at_each_time(world: World) -> None:
    """The address that was checked is the one that is connected to; a second read checks again."""
    contract = replace(_ORIGINALS, auth=CREDENTIALS["bearer"], result_hosts=("rebinding.net", "mixed.net"))
    op, _ = record(contract, State.OBSERVING)
    world.network.forget()
    world.network.answer = lambda _: plain(b"a,b\n")
    read = requests.collect(op, contract, {"result_url": "http://rebinding.net/x"}, contract.base_url)
    assert isinstance(world.run(download(world, op, contract, read)), Download)
    assert world.network.lookups["rebinding.net"] == 1
    again = world.run(download(world, op, contract, read))
    assert isinstance(again, Failure) and "private address" in again.why
    assert world.network.lookups["rebinding.net"] == 2
    mixed = requests.collect(op, contract, {"result_url": "http://mixed.net/x"}, contract.base_url)
    assert isinstance(world.run(download(world, op, contract, mixed)), Failure)
    assert {address for address, _ in world.network.tried} <= {OURS, EVIL}


@pytest.mark.parametrize("relation", PLACES)
@pytest.mark.parametrize("kind", ["create", "observe"])
def test_a_token_endpoint_leads_nowhere(world: World, relation: str, kind: str) -> None:
    """Its redirects are not followed, and what it is itself must lie where the provider may send us."""
    place, _ = PLACES[relation]
    auth = Auth("oauth2_client_credentials", "env:KEY", client_id="me", token_url="http://api.example.com/token")
    contract = replace(_ORIGINALS, auth=auth)
    for status in STATUSES:
        world.network.forget()
        world.network.answer = lambda _, status=status: redirect(status, place.encode().decode("latin-1"))  # type: ignore[misc]
        with pytest.raises(ConfigWrong, match="redirects"):
            world.run(call(world, kind, contract))
        assert [seen.first_line.split(" ")[1] for seen in world.network.seen] == ["/token"]
        assert {address for address, _ in world.network.tried} <= {OURS}
    world.network.forget()
    inside = replace(contract, auth=replace(auth, token_url=f"http://inside.corp/{relation.strip('.')}"))
    outcome, _ = world.run(call(world, kind, inside))
    assert isinstance(outcome, Failure) and outcome.fate is Fate.NOT_DELIVERED
    assert world.network.tried == []


def test_a_listed_host_does_not_send_us_back_with_credentials(world: World) -> None:
    """Else a stranger would choose what we ask the provider for in our name."""
    contract = replace(_ORIGINALS, auth=CREDENTIALS["bearer"], result_hosts=("evil.net",))
    world.network.forget()
    places = {b"/result": "http://evil.net/x", b"/x": "http://api.example.com/admin/everything"}

    def answer(seen: Seen) -> bytes:
        path = seen.raw.split(b" ")[1]
        return redirect(302, places[path]) if path in places else plain()

    world.network.answer = answer
    world.run(call(world, "collect", contract))
    assert [seen.address[0] for seen in world.network.seen] == [OURS, EVIL, OURS]
    assert world.leaks(world.network.seen[2]) == []


def test_a_stranger_cannot_refuse_credentials_that_it_never_got(world: World) -> None:
    """A store of files that answers 401 for an expired link does not pause the provider; the provider itself does."""
    contract = replace(_ORIGINALS, auth=CREDENTIALS["bearer"], result_hosts=("evil.net",))
    op, _ = record(contract, State.OBSERVING)
    refused = b"HTTP/1.1 401 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    for place, pauses in (("http://evil.net/x", False), ("http://api.example.com/x", True)):
        world.network.answer = lambda _: refused
        read = requests.collect(op, contract, {"result_url": place}, contract.base_url)
        world.run(download(world, op, contract, read))  # so that the secret was read before, and is read again
        outcome = world.run(download(world, op, contract, read))
        assert isinstance(outcome, Answer)
        told = answers.read_missing_result(outcome, op, contract, call_id="c", answer=None)
        assert told.credentials is pauses
