"""The systemd units of the worker and of the receiver of webhooks, as text.

What each line keeps from the process: `man systemd.exec`. `systemd-analyze security --offline=true UNIT` gives the sum.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import opledger
from opledger.errors import UsageError
from opledger.store.postgres import SERVICE

USER: Final = "opledger"
STATE: Final = "/var/lib/opledger"
SERVICE_FILE: Final = "pg_service.conf"
"""What holds the password. A password file would not do: libpq refuses one that is read by way of an access list."""
_HOMES: Final = (Path("/home"), Path("/root"), Path("/run/user"))


@dataclass(frozen=True, slots=True)
class Kind:
    """What sets one unit apart from the other."""

    name: str
    says: str
    command: tuple[str, ...]
    stop: int  #: seconds: what is under way is ended, leases are given back, the last checkpoint is written
    memory: str


KINDS: Final = {
    "worker": Kind("opledger-worker", "opledger worker: drives operations", ("worker", "--name", "%H"), 60, "1G"),
    "webhooks": Kind(
        "opledger-webhooks",
        "opledger webhooks: receives what providers send",
        ("webhooks", "serve", "--host", "127.0.0.1", "--port", "8787"),
        30,
        "512M",
    ),
}

_SANDBOX: Final = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
UMask=0077
ProtectSystem=strict
PrivateMounts=yes
PrivateTmp=yes
PrivateDevices=yes
DevicePolicy=closed
PrivateUsers=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectProc=invisible
ProcSubset=pid
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM"""


def unit(kind: str, server: str | None = None) -> tuple[str, str]:
    """Return the name and the text of a unit for this interpreter.

    `server` is the URL of a PostgreSQL ledger, without secrets (`store.without_secrets`); None stands for an SQLite
    file in the unit's own state folder. Raises UsageError for another kind, or for a path that no unit can name.
    """
    if kind not in KINDS:
        raise UsageError(f"there is no unit {kind!r}; write --systemd {' or --systemd '.join(KINDS)}")
    about = KINDS[kind]
    lines = [
        *_preface(kind, about, server),
        "[Unit]",
        f"Description={about.says}",
        "Wants=network-online.target",
        "After=network-online.target postgresql.service",
        # It starts again for as long as a database may be away; what only a person can mend ends it.
        "StartLimitIntervalSec=1h",
        "StartLimitBurst=120",
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={_word(sys.executable)} -m opledger.cli {' '.join(about.command)}",
        "Restart=on-failure",
        "RestartSec=10s",
        "RestartPreventExitStatus=2 3 4",
        "KillMode=mixed",
        "KillSignal=SIGTERM",
        f"TimeoutStopSec={about.stop}s",
        f"User={USER}",
        f"Group={USER}",
        *_places(kind, server),
        *_sees(_code()),
        *_SANDBOX.splitlines(),
        *_network(kind, server),
        f"MemoryMax={about.memory}",
        "TasksMax=512",
        "LimitNOFILE=8192",
        "LimitCORE=0",  # a core file would hold every secret
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return f"{about.name}.service", "\n".join(lines) + "\n"


def _preface(kind: str, about: Kind, server: str | None) -> Iterator[str]:
    name = f"{about.name}.service"
    yield f"# /etc/systemd/system/{name}"
    yield "#"
    yield f"# useradd --system --home-dir {STATE} --no-create-home --shell /usr/sbin/nologin {USER}"
    yield f"# install -d -m 0700 /etc/opledger/secrets/{kind}"
    yield "# Settings: /etc/opledger/opledger.toml. Secrets: one file each in the folder above (0600, root); a contract"
    yield f'# names them so: "file:/run/credentials/{name}/secret_FILE"'
    if server is not None and SERVICE in server:
        yield f"# The database's password: two lines, [opledger] and password=…, in the file {SERVICE_FILE} there"
    yield f"# systemctl daemon-reload && systemctl enable --now {about.name}"
    yield "# People and agents on this machine:"
    yield f"#   sudo -u {USER} env XDG_CONFIG_HOME=/etc XDG_DATA_HOME=/var/lib {sys.executable} -m opledger.cli console"
    yield ""


def _places(kind: str, server: str | None) -> Iterator[str]:
    yield "WorkingDirectory=/etc/opledger"
    yield "StateDirectory=opledger"
    yield "StateDirectoryMode=0700"
    yield "CacheDirectory=opledger"
    yield "CacheDirectoryMode=0700"
    yield "Environment=XDG_CONFIG_HOME=/etc XDG_DATA_HOME=/var/lib XDG_CACHE_HOME=/var/cache PYTHONDONTWRITEBYTECODE=1"
    yield f"Environment={_word('OPLEDGER_DB=' + (server or f'sqlite:///{STATE}/ledger.db'))}"
    yield f"LoadCredential=secret:/etc/opledger/secrets/{kind}"
    if server is not None and SERVICE in server:
        yield f"Environment=PGSERVICEFILE=%d/secret_{SERVICE_FILE}"


def _network(kind: str, server: str | None) -> Iterator[str]:
    """Metadata services of clouds live on link-local addresses. The receiver calls nobody but the database."""
    if kind == "webhooks" and server is None:
        yield "IPAddressDeny=any"
        yield "IPAddressAllow=localhost"
    else:
        yield "IPAddressDeny=link-local multicast"


def _code() -> tuple[Path, ...]:
    """Where the interpreter and this program lie."""
    here = Path(opledger.__file__).parent
    return tuple(
        dict.fromkeys(
            place.resolve()
            for place in (Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent, here)
        )
    )


def _sees(code: Iterable[Path]) -> Iterator[str]:
    """Hide the home folders; where the program lies in one, only that is seen, and only to be read."""
    at_home = [place for place in code if any(place.is_relative_to(home) for home in _HOMES)]
    yield "ProtectHome=tmpfs" if at_home else "ProtectHome=yes"
    for place in at_home:
        escaped = str(place).replace(":", "\\:")  # a colon ends the path
        yield f"BindReadOnlyPaths={_word(escaped)}"


def _word(text: str) -> str:
    """Quote a word as systemd.syntax(7) wants it. Raises UsageError where that cannot be."""
    if not text.isprintable():
        raise UsageError(f"a unit cannot name {text!r}: it has a control character in it; move it to another path")
    text = text.replace("%", "%%")
    if not any(char in text for char in " \"'\\;"):
        return text
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'
