from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping

from hypothesis import given
from hypothesis import strategies as st

from opledger.rules.files.toml_lines import Path, locate
from tests.core.rules.contract_example import EXAMPLE

TRICKY = '''\
# a comment with [table] and key = 1
a = "text with # and [b] and \\" in it"   # comment
"quoted.key" = 'literal # [x]'

b.c.d = 1
[ t . "u v" ]   # spaces and quotes
text = """
[not.a.table]
key = "no"
""""
raw = \'\'\'
[[nor.this]]
\'\'\'\'
after = [
  1, # one
  [ 2, { x = 3, "y z" = [
    4 ] } ],
]
[[items]]
n = 1
[[items.parts]]
n = 2
[[items.parts]]
n = 3
[[items]]
n = 4
[items.more]
n = 5
'''


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    """Every path that the parsed document has."""
    if path:
        yield path
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, (*path, index))


def test_every_key_of_a_tricky_file_is_found_on_its_line() -> None:
    """Strings that look like tables, dotted and quoted keys, nested arrays: an error must still point to its place."""
    lines = locate(TRICKY)
    assert set(lines) == set(paths(tomllib.loads(TRICKY)))
    expected = {
        ("a",): 2, ("quoted.key",): 3, ("b", "c"): 5, ("b", "c", "d"): 5, ("t", "u v"): 6, ("t", "u v", "text"): 7,
        ("t", "u v", "raw"): 11, ("t", "u v", "after"): 14, ("t", "u v", "after", 0): 15,
        ("t", "u v", "after", 1, 1, "x"): 16, ("t", "u v", "after", 1, 1, "y z", 0): 17, ("items",): 19,
        ("items", 0): 19, ("items", 0, "parts", 1, "n"): 24, ("items", 1): 25, ("items", 1, "more", "n"): 28,
    }  # fmt: skip
    assert {path: lines[path] for path in expected} == expected


def test_windows_line_ends_count_once() -> None:
    """A file saved on another system has the same lines."""
    assert locate(TRICKY.replace("\n", "\r\n")) == locate(TRICKY)


def test_the_documented_example_has_a_line_for_every_key() -> None:
    """Each key of the real format is where a person sees it."""
    lines = locate(EXAMPLE)
    assert set(lines) == set(paths(tomllib.loads(EXAMPLE)))
    source = EXAMPLE.splitlines()
    for path, line in lines.items():
        if isinstance(path[-1], str):
            assert path[-1] in source[line - 1]


_KEYS = st.text("ab.\"' =[]#\\\n\té", min_size=1, max_size=4)
_VALUES = st.recursive(
    st.booleans() | st.integers() | st.text("ab\"'#[]{}=,\n\\", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=10,
)


def basic(text: str) -> str:
    """Write a basic string."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


def inline(value: object, gap: str) -> str:
    """Write a value, with `gap` wherever an array may have space or comments."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return basic(value)
    if isinstance(value, list):
        return f"[{gap}" + f",{gap}".join(inline(item, gap) for item in value) + f"{gap}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{basic(key)} = {inline(item, gap)}" for key, item in value.items()) + " }"
    return str(value)


def written(document: Mapping[str, object], prefix: str, gap: str) -> Iterator[str]:
    """Write a document: plain values first, then tables and arrays of tables with headers of their own."""
    nested = {
        key: value
        for key, value in document.items()
        if isinstance(value, dict) or (isinstance(value, list) and value and {type(item) for item in value} == {dict})
    }
    for key, value in document.items():
        if key not in nested:
            yield f"{basic(key)} = {inline(value, gap)} # [x] = 1"
    for key, value in nested.items():
        header = f"{prefix}.{basic(key)}" if prefix else basic(key)
        if isinstance(value, dict):
            yield f"[{header}]"
            yield from written(value, header, gap)
        else:
            assert isinstance(value, list)
            for item in value:
                yield f"[[ {header} ]]"
                yield from written(item, header, gap)


@given(st.dictionaries(_KEYS, _VALUES, max_size=5), st.sampled_from(["", "\n", " # ] , }\n\n  "]))
def test_whatever_the_reader_accepts_is_found_whole(document: dict[str, object], gap: str) -> None:
    """The two readers of one text must never disagree about which keys it has."""
    source = "\n".join(written(document, "", gap))
    parsed = tomllib.loads(source)
    assert parsed == document
    lines = locate(source)
    assert set(lines) == set(paths(parsed))
    assert all(1 <= line <= source.count("\n") + 1 for line in lines.values())
