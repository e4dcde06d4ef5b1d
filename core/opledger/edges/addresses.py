"""Which addresses a URL from an answer may lead to (DESIGN §9, I25): never into a network that only we can see.

A result URL comes from the provider. Without this check it could make the worker read the cloud's metadata service or
a machine in the local network.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from contextvars import ContextVar
from typing import Final, Literal

Kind = Literal["public", "private", "link_local", "loopback"]

PUBLIC: Final[frozenset[Kind]] = frozenset({"public"})
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")

PERMITTED: ContextVar[frozenset[Kind]] = ContextVar("permitted", default=PUBLIC)
"""Where the request of this task may lead."""


class AddressRefused(OSError):
    """A host of a foreign URL lies at an address that must not be reached."""

    def __init__(self) -> None:
        super().__init__("the host has a private address")


def kind_of(address: str) -> Kind:
    """Say where an IP address is. IPv4 inside IPv6 counts as what it is. Raises ValueError for anything else."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip.sixtofour or _translated(ip) or ip
    if ip.is_loopback or ip.is_unspecified:
        return "loopback"
    if ip.is_link_local:
        return "link_local"
    return "public" if ip.is_global and not ip.is_multicast else "private"


def _translated(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that a gateway takes out of this one: NAT64 (RFC 6052), and what is IPv4-compatible."""
    number = int(ip)
    if ip in _NAT64 or (number >> 32 == 0 and number > 1):
        return ipaddress.IPv4Address(number & 0xFFFFFFFF)
    return None


def literal(host: str) -> Kind | None:
    """Return the kind of an address that is written out, None for a name.

    Raises AddressRefused for the old ways to write an address (``2130706433``, ``127.1``), which programs read
    differently.
    """
    bare = host.strip("[]")
    try:
        return kind_of(bare)
    except ValueError:
        if ":" in bare or bare.replace(".", "").isdigit():
            raise AddressRefused from None
        return None


async def kinds(host: str, port: int) -> frozenset[Kind]:
    """Return the kinds of all addresses of a host. Raises OSError where it has none."""
    written = literal(host)
    if written is not None:
        return frozenset({written})
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return frozenset(kind_of(str(entry[4][0])) for entry in found)


def permitted(base: frozenset[Kind]) -> frozenset[Kind]:
    """Return where a foreign URL may lead: public, and the local networks only if the base URL itself is in one.

    Link-local addresses (the metadata service) only from a link-local base.
    """
    local = base - PUBLIC
    if not local:
        return PUBLIC
    return PUBLIC | local | {"private", "loopback"}
