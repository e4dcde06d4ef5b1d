from __future__ import annotations

import socket
from contextvars import Context

import pytest

from opledger.edges.addresses import PERMITTED, AddressRefused, Kind, kind_of, kinds, literal, permitted


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("93.184.216.34", "public"),
        ("2606:4700::1", "public"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("224.0.0.1", "private"),
        ("ff02::1", "private"),
        ("169.254.169.254", "link_local"),
        ("fe80::1%eth0", "link_local"),
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("0.0.0.0", "loopback"),
        ("::1", "loopback"),
        ("::", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "link_local"),
        ("2002:7f00:1::", "loopback"),
        ("64:ff9b::a9fe:a9fe", "link_local"),
        ("64:ff9b::a00:7", "private"),
        ("64:ff9b::5db8:d822", "public"),
        ("::a00:7", "private"),
        ("::7f00:1", "loopback"),
        ("::2", "private"),
        ("127.0.0.1%lo", "loopback"),
    ],
)
def test_addresses_are_told_apart(address: str, kind: Kind) -> None:
    """Each of these has been a way into somebody's network."""
    assert kind_of(address) == kind


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0", "010.0.0.1", "1:2", "127.0.0.1."])
def test_odd_ways_to_write_an_address_are_refused(host: str) -> None:
    """One program reads them as a name, another as an address."""
    with pytest.raises(AddressRefused, match="the host has a private address"):
        literal(host)


def test_names_are_no_addresses() -> None:
    """A name must be resolved first."""
    assert literal("api.example.com") is None
    assert literal("3com.com") is None
    assert literal("[::1]") == "loopback"


@pytest.mark.parametrize(
    ("base", "allowed"),
    [
        ({"public"}, {"public"}),
        ({"private"}, {"public", "private", "loopback"}),
        ({"loopback"}, {"public", "private", "loopback"}),
        ({"link_local"}, {"public", "private", "loopback", "link_local"}),
        (set(), {"public"}),
    ],
)
def test_only_who_is_inside_leads_inside(base: set[Kind], allowed: set[Kind]) -> None:
    """A provider in the local network may store its results there; the metadata service is nobody's store."""
    assert permitted(frozenset(base)) == allowed


def test_a_request_that_nobody_vouched_for_leads_to_public_addresses_only() -> None:
    """What has no base URL of its own comes from outside."""
    assert Context().run(PERMITTED.get) == {"public"}


async def test_a_host_is_where_all_of_its_addresses_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with one harmless and one private address is the usual trick."""
    assert await kinds("127.0.0.1", 80) == {"loopback"}
    assert await kinds("localhost", 80) == {"loopback"}
    with pytest.raises(AddressRefused):
        await kinds("127.1", 80)
    found = [(socket.AF_INET, 1, 6, "", (address, 80)) for address in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert await kinds("api.example.com", 80) == {"public", "private"}
