"""URLs and headers as they leave."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.edges import credentials
from opledger.edges.carriers import tidy
from opledger.errors import ConfigWrong

_PIECES = st.sampled_from(("..", "/.", "%2F", "%2f", "%41", "%zz", *"/.aZ0~%?#'\" é:@[]\\|^`{}<>&=+-_!$()*,;"))
_AUTHORITIES = st.sampled_from(
    [
        "api.example.com",
        "API.example.com",
        "h:80",
        "h:443",
        "h:8000",
        "h:08",
        "h:",
        "127.0.0.1:9",
        "[::1]:8",
        "u@h",
        "ü.de",
    ]
)


@given(st.sampled_from(["http", "https", "HTTP"]), _AUTHORITIES, st.lists(_PIECES, max_size=12))
def test_a_url_leaves_as_httpx_would_write_it(scheme: str, authority: str, rest: list[str]) -> None:
    """The quick way gives nothing else than the long one."""
    url = f"{scheme}://{authority}{''.join(rest)}"
    try:
        expected = str(httpx.URL(url))
    except httpx.InvalidURL:
        with pytest.raises(httpx.InvalidURL):
            tidy(url)
        return
    assert tidy(url) == expected


def test_an_ordinary_url_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that providers use take the quick way."""
    monkeypatch.setattr("opledger.edges.carriers.httpx.URL", lambda url: pytest.fail(f"parsed {url}"))
    for url in (
        "https://api.example.com/v1/jobs/job_1?page=2&after=a%2Fb",
        "http://127.0.0.1:8123/jobs/01KZ/result",
    ):
        assert tidy(url) == url


def test_half_a_character_cannot_leave_in_a_header() -> None:
    """UTF-8 cannot hold it: the contract or the secret is at fault, and nothing is sent."""
    with pytest.raises(ConfigWrong, match="X-Note"):
        credentials.checked({"x-note": ("X-Note", "a\ud800")})
