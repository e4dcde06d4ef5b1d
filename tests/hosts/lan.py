"""A router and the hosts around it, each in a network namespace of its own; Linux, root and iproute2 are needed.

All of it lives in namespaces that belong to one process, down to process ids and mounts: when that process ends,
however it ends, the kernel takes processes, cables and names away with it, and nothing of it was ever to be seen
outside. `enclosed` starts a process so. In there its own network namespace is the router, and each host is a named
namespace at the other end of a pair of virtual cables.

The provider only speaks http, which a contract allows on 127.0.0.1 alone. So that address is not local here: router
and workers have no loopback, and send what goes to 127.0.0.1 to the provider's host, where it is.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

LOOPBACK: Final = "127.0.0.1"
TOOLS: Final = ("ip", "unshare", "nsenter", "mount")
ENCLOSE: Final = (
    *("unshare", "--fork", "--pid", "--mount-proc", "--net", "--mount", "--kill-child"),
    *("--propagation", "private"),
)
_PR_SET_PDEATHSIG: Final = 1

How = Literal["silent", "mute", "deaf", "down"]
"""What a cut does: lose everything both ways, all that the host sends, all that it is sent; or take its cable away."""


def impossible() -> str | None:
    """Say why there can be no hosts here; None where there can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} (iproute2, util-linux) must be installed"
    tried = subprocess.run([*ENCLOSE, "ip", "link"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no namespaces can be made here: {tried.stderr.strip()[:200]}"


def _dies_with_us() -> None:
    """Have the process that starts here end with the one that started it. Runs between fork and exec."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def enclosed(command: Sequence[str], **how: object) -> subprocess.Popen[bytes]:
    """Start a process in namespaces of its own. Killed or not, nothing that it starts outlives it, or us."""
    return subprocess.Popen([*ENCLOSE, *command], preexec_fn=_dies_with_us, **how)  # type: ignore[call-overload]  # noqa: PLW1509 - no threads yet


def ip(*arguments: str) -> None:
    """Run ``ip``. Raises CalledProcessError."""
    subprocess.run(["ip", *arguments], check=True, stdin=subprocess.DEVNULL)


@dataclass(frozen=True, slots=True)
class Host:
    """One host, behind its cable."""

    name: str
    number: int

    @property
    def address(self) -> str:
        """Its address on the cable."""
        return f"10.77.{self.number}.2"

    @property
    def gateway(self) -> str:
        """The router's address on the cable."""
        return f"10.77.{self.number}.1"

    @property
    def cable(self) -> str:
        """The router's end of the cable."""
        return f"r{self.number}"

    @property
    def enter(self) -> tuple[str, ...]:
        """What to put in front of a command that is to run on this host."""
        return ("nsenter", f"--net=/run/netns/{self.name}")


@dataclass(slots=True)
class Lan:
    """The router. To be made in a process that was started by `enclosed`, once."""

    hosts: dict[str, Host] = field(default_factory=dict)
    _cuts: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)  #: by host, how each cut is undone

    def __post_init__(self) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)  # where the names of namespaces stand
        _set("ip_forward", "1")

    def plug(self, name: str, *, provider: bool = False) -> Host:
        """Add a host. The provider's comes first: the others must know where 127.0.0.1 is."""
        host = Host(name, len(self.hosts) + 1)
        ip("netns", "add", name)
        ip("link", "add", host.cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("addr", "add", f"{host.gateway}/24", "dev", host.cable)
        ip("link", "set", host.cable, "up")
        _set(f"conf/{host.cable}/route_localnet", "1")
        _set(f"conf/{host.cable}/rp_filter", "0")
        ip("-n", name, "addr", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "route", "add", "default", "via", host.gateway)
        there = " && ".join(
            f"echo {value} > /proc/sys/net/ipv4/conf/{what}"
            for what, value in (("eth0/route_localnet", 1), ("eth0/rp_filter", 0), ("all/rp_filter", 0))
        )
        subprocess.run([*host.enter, "sh", "-c", there], check=True)
        if provider:
            ip("-n", name, "link", "set", "lo", "up")
            ip("route", "add", f"{LOOPBACK}/32", "via", host.address)
        else:
            ip("-n", name, "route", "add", f"{LOOPBACK}/32", "via", host.gateway)
        self.hosts[name] = host
        return host

    def cut(self, host: Host, peers: Sequence[str], how: How) -> None:
        """Lose packets between a host and some addresses without a word, or take away the host's cable."""
        undo = self._cuts.setdefault(host.name, [])
        if how == "down":
            ip("link", "set", host.cable, "down")
            undo.append(("link", "set", host.cable, "up"))
            return
        for peer in peers:
            ways = {"mute": [(host.address, peer)], "deaf": [(peer, host.address)]}
            for sender, receiver in ways.get(how, [*ways["mute"], *ways["deaf"]]):
                ip("rule", "add", "from", sender, "to", receiver, "blackhole")
                undo.append(("rule", "del", "from", sender, "to", receiver, "blackhole"))

    def heal(self, host: Host) -> None:
        """Undo all cuts of a host."""
        for words in self._cuts.pop(host.name, []):
            ip(*words)


def _set(name: str, value: str) -> None:
    Path("/proc/sys/net/ipv4", name).write_text(value)
