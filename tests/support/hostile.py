"""Texts made to act on a terminal, to hide, or to break whoever lays them out (T18)."""

from __future__ import annotations

import random
import re
import unicodedata
from typing import Final

C0: Final = [chr(point) for point in range(32)]
C1: Final = [chr(point) for point in range(0x7F, 0xA0)]
BIDI: Final = [*map(chr, (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))]
UNSEEN: Final = [
    *map(chr, (0xAD, 0x34F, 0x115F, 0x1160, 0x17B4, 0x180E, 0x200B, 0x200C, 0x200D, 0x2028, 0x2029, 0x2060, 0x2061)),
    *map(chr, (0x206A, 0x206F, 0x3164, 0xFE00, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF9, 0xFFFB, 0xE000, 0xFDD0, 0xFFFE, 0xFFFF)),
    *map(chr, (0x1D173, 0x1BCA0, 0xE0001, 0xE0041, 0xE007F, 0xE0100, 0xF0000, 0x10FFFF, 0x378)),
]
HALVES: Final = ["\ud800", "\udbff", "\udc00", "\udfff", "\udcff"]
ENDS: Final = ["\x07", "\x1b\\", "\x9c", ""]
SEQUENCES: Final = [
    *(
        f"\x1b[{code}"
        for code in ("2J", "H", "31m", "0;1;5m", "?1049h", "?1000h", "6n", "c", "3J", "999D", "1A\x1b[2K", "?25l")
    ),
    *(f"\x9b{code}" for code in ("2J", "31m", "6n")),
    *(
        f"\x1b]{code}{end}"
        for code in ("0;owned", "2;x", "8;;http://evil.net", "52;c;cm0gLXJm", "4;1;?", "1337;File=:x", "9;x")
        for end in ENDS
    ),
    *(f"\x1bP{code}{end}" for code in ('$q"p', "+q544e", "1;1|17/17", "q#0;2;0;0;0") for end in ENDS),
    *(
        f"\x1b{code}"
        for code in ("c", "7", "8", "(0", "#8", "Z", ">", "=", "N", "O", "^x\x1b\\", "_x\x1b\\", "X\x1b\\")
    ),
    "\x9d0;x\x9c",
    "\x90q\x9c",
    "\x9ex\x9c",
    "\x8d",
    "\x84",
    "\x85",
    "a\x08\x08\x08b",
    "\r\x1b[Kapproved",
    "a\rb",
    "\x0e\x0f",
    "\x05",
]
MARKUP: Final = [
    "[@click=app.approve('N')]CLICK[/]",
    "[bold red]approved[/bold red]",
    "[/red]x",
    "[",
    "]",
    "[]",
    "[/]",
    "\\[x]",
    "[link=http://evil.net]x[/link]",
    "[sys:LOCK=SAFE…]",
    ":skull:",
    "[0]",
    "$var",
    "{secret.x}",
    "%s%n%x",
    "{0.__class__}",
    "<script>alert(1)</script>",
    "![x](http://evil.net/x)",
    "| a | b |\n|--|--|",
    "```\nrm -rf /\n```",
    "\n# approved by ana",
    "javascript:alert(1)",
    "`id`",
    "$(id)",
    "'; DROP TABLE operation; --",
    "=1+1",
    "a\tb",
    "</pre>",
]
LONG: Final = [
    "A" * 1_000_000,
    "e" + "\u0301" * 5000,
    "\u0301" * 500,
    "\u202e" * 3000,
    "\x1b[31m" * 2000,
    "\u6f22" * 5000,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 500,
    "\n" * 3000,
    "a " * 5000,
    "\ufdfa" * 2000,
    "\u0e33" * 3000,
    "\u200b" * 5000,
    "\t" * 3000,
    "\u05d0\u05d1 " * 2000,
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 " * 1000,
    "\U00012031" * 3000,
]


def strings(seed: int = 18, count: int = 2_000) -> list[str]:
    """At least so many different texts: every dangerous character and sequence alone and amid words, then mixes."""
    draw = random.Random(seed)
    alone = [*C0, *C1, *BIDI, *UNSEEN, *HALVES, *SEQUENCES, *MARKUP]
    found = dict.fromkeys([*alone, *LONG, *(f"before{text}after" for text in alone)])
    pieces = [
        *alone,
        "approved",
        "\u05d0\u05d1\u05d2",
        "\u0301\u0302\u0303",
        "\u6f22\u5b57",
        "e\u0301",
        " ",
        "\u00a0",
        "x" * 90,
    ]
    while len(found) < count:
        found["".join(draw.choice(pieces) for _ in range(draw.randint(2, 9)))] = None
    return list(found)


STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
"""What may leave the program beside text: colours."""

# Written out once more, and not taken from the code under test: what no terminal may get.
_ACTS: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_EMPTY: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")


def raw(text: str, allowed: str = "\n") -> list[str]:
    """What of a text would act or hide on a terminal, each once, as escapes."""
    return sorted(
        {
            ascii(char)
            for char in set(text) - set(allowed)
            if unicodedata.category(char) in _ACTS
            or char in _EMPTY
            or "\ufe00" <= char <= "\ufe0f"
            or "\U000e0100" <= char <= "\U000e01ef"
        }
    )


def stacks(text: str) -> int:
    """How many accents stand on one letter, at most."""
    most = now = 0
    for char in text:
        now = now + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        most = max(most, now)
    return most
