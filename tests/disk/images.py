"""T8: what may lie on the disk after the power went, at any point of a trace.

A file has what was brought to the disk, and pending calls since. Of these any may have come through, in any mixture,
and a write only in some of its 512-byte sectors. A name is there once its folder was brought to the disk; until then
it may be. This is harsher than a journaling file system is, and as harsh as POSIX allows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.disk.events import Call
from tests.disk.recorder import Mark, Trace

SECTOR: Final = 512
SUBSETS: Final = 16
TORN: Final = 6


@dataclass(slots=True)
class Node:
    """One file, by whatever names."""

    number: int
    safe: bytearray = field(default_factory=bytearray)
    version: int = 0  #: how many calls are safe
    pending: list[tuple[int, Call]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Entry:
    """A pending change of a folder: a name comes (with a file, or as a folder), or goes."""

    at: int
    name: str
    node: Node | None
    is_folder: bool = False


Piece = tuple[int, int, int]  #: of call `at`: from byte, to byte
Kept = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """One disk after one power cut. `key` tells whether two are the same."""

    point: int
    how: str
    acknowledged: int  #: number of the last commit that was acknowledged
    begun: int  #: number of the last commit that had begun
    files: dict[str, tuple[Node, Kept]]
    key: tuple[object, ...]

    def bytes_of(self, name: str) -> bytes:
        """The content of one file."""
        node, kept = self.files[name]
        data = bytearray(node.safe)
        calls = dict(node.pending)
        for at, start, end in kept:
            apply(data, calls[at], start, end)
        return bytes(data)


def apply(data: bytearray, call: Call, start: int = 0, end: int | None = None) -> None:
    """Do to the content what a call does, or a part of a write."""
    if call.what == "truncate":
        if call.at < len(data):
            del data[call.at :]
        else:
            data.extend(bytes(call.at - len(data)))
        return
    piece = call.data[start:end]
    at = call.at + start
    if at > len(data):
        data.extend(bytes(at - len(data)))
    data[at : at + len(piece)] = piece


class Disk:
    """A disk to which a trace is played, call by call."""

    def __init__(self, trace: Trace) -> None:
        self._count = 0
        self.names: dict[str, Node] = {}  #: as processes see it
        self.safe: dict[str, Node] = {}  #: as the disk has it
        self.folders: set[str] = {"", *trace.folders}
        self.pending: list[Entry] = []
        self.acknowledged = self.begun = self.point = 0
        for name, data in trace.before.items():
            self.names[name] = self.safe[name] = node = self._new()
            node.safe[:] = data

    def _new(self) -> Node:
        self._count += 1
        return Node(self._count)

    def play(self, entry: Call | Mark) -> None:
        """One step on."""
        self.point += 1
        if isinstance(entry, Mark):
            if entry.acknowledged:
                self.acknowledged = entry.commit
            else:
                self.begun = entry.commit
            return
        match entry.what:
            case "open":
                # What our own look at the content has made in passing is new to this disk, too.
                if (entry.made or entry.room == "database") and entry.name not in self.names:
                    self.names[entry.name] = self._new()
                    self._change(entry.name, self.names[entry.name])
            case "write" | "truncate" if entry.name in self.names:  # else it was removed: nobody will see it
                self.names[entry.name].pending.append((self.point, entry))
            case "sync" if entry.name in self.names:
                self._settle(self.names[entry.name])
            case "syncdir":
                self._settle_folder(entry.name)
            case "link":
                self.names[entry.to] = self.names[entry.name]
                self._change(entry.to, self.names[entry.to])
            case "rename":
                self.names[entry.to] = self.names.pop(entry.name)
                self._change(entry.to, self.names[entry.to])
                self._change(entry.name, None)
            case "delete":
                self.names.pop(entry.name, None)
                self._change(entry.name, None)
            case "mkdir":
                self.pending.append(Entry(self.point, entry.name, None, is_folder=True))

    def _change(self, name: str, node: Node | None) -> None:
        self.pending.append(Entry(self.point, name, node))

    def _settle(self, node: Node) -> None:
        for _, call in node.pending:
            apply(node.safe, call)
        node.version += len(node.pending)
        node.pending.clear()

    def _settle_folder(self, folder: str) -> None:
        for entry in [one for one in self.pending if os.path.dirname(one.name) == folder]:
            _enter(self.safe, self.folders, entry)
            self.pending.remove(entry)

    # --- images -------------------------------------------------------------------------------------------------

    def images(self, random: Random) -> Iterator[Image]:
        """The disks that a power cut now may leave: nothing pending, all of it, subsets, and torn sectors."""
        yield self._image("none", random, keep=0.0)
        yield self._image("all", random, keep=1.0)
        if not self.pending and not any(node.pending for node in self._nodes()):
            return
        for number in range(SUBSETS):
            yield self._image(f"subset {number}", random, keep=(0.5, 0.15, 0.85, 0.5)[number % 4])
        for number in range(TORN):
            yield self._image(f"torn {number}", random, keep=(0.8, 0.5)[number % 2], torn=(0.6, 0.2)[number % 2])

    def _nodes(self) -> list[Node]:
        found = {node.number: node for node in (*self.names.values(), *self.safe.values())}
        return list(found.values())

    def _image(self, how: str, random: Random, *, keep: float, torn: float = 0.0) -> Image:
        names, folders = dict(self.safe), set(self.folders)
        for entry in self.pending:
            if random.random() < keep:
                _enter(names, folders, entry)
        names = {name: node for name, node in names.items() if _is_reachable(name, folders)}
        kept = {node.number: self._kept(node, random, keep, torn) for node in names.values() if node.pending}
        files = {name: (node, kept.get(node.number, ())) for name, node in names.items()}
        key = tuple((name, node.number, node.version, pieces) for name, (node, pieces) in sorted(files.items()))
        return Image(self.point, how, self.acknowledged, self.begun, files, key)

    def _kept(self, node: Node, random: Random, keep: float, torn: float) -> Kept:
        found: list[Piece] = []
        last = node.pending[-1][0]
        for at, call in node.pending:
            if call.what == "truncate":
                if random.random() < keep:
                    found.append((at, 0, 0))
            elif torn and (at == last or random.random() < torn):
                found += [(at, *piece) for piece in _sectors(call) if random.random() < 0.5]
            elif random.random() < keep:
                found.append((at, 0, len(call.data)))
        return tuple(found)


def _sectors(call: Call) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(call.data):
        end = min((call.at + start) // SECTOR * SECTOR + SECTOR - call.at, len(call.data))
        yield start, end
        start = end


def _enter(names: dict[str, Node], folders: set[str], entry: Entry) -> None:
    if entry.is_folder:
        folders.add(entry.name)
    elif entry.node is None:
        names.pop(entry.name, None)
    else:
        names[entry.name] = entry.node


def _is_reachable(name: str, folders: set[str]) -> bool:
    folder = os.path.dirname(name)
    while folder:
        if folder not in folders:
            return False
        folder = os.path.dirname(folder)
    return True
