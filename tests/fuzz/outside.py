"""Targets that read what providers and networks send."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from fractions import Fraction
from typing import Any, Final

import httpx
import rfc8785

from opledger.edges import addresses
from opledger.errors import Refused
from opledger.rules import calls, durations, fingerprint, jsontext, model, pages, plain, requests, schedule, webhooks
from opledger.rules import signatures as signing
from opledger.rules.contract import Contract, TextCode, Webhook
from opledger.rules.files.contract import parse
from opledger.rules.webhooks import Delivery, Refusal
from tests.fuzz.ground import Target, law, text_of

NOW: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)

# --- JSON: the strict reader, the canonical form -------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are the same, 1 and 1.0 and true being three."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


def meaning(value: Any) -> Any:
    """Return what a fingerprint is to tell apart: numbers by value, objects without order."""
    if isinstance(value, dict):
        return ("o", frozenset((key, meaning(inner)) for key, inner in value.items()))
    if isinstance(value, list):
        return ("a", tuple(map(meaning, value)))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ("n", Fraction(repr(value)))  # a float means the shortest number that is read as it
    return (type(value).__name__, value)


def _why_refused(text: str) -> str | None:
    """Say why we refuse what Python reads, by other means than ours; None where there is no reason."""
    twice: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(["a key stands twice"] * (len(dict(found)) != len(found)))
        return dict(found)

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return "Python does not read it either"
    if twice:
        return twice[0]
    todo = [(value, 0)]
    while todo:
        one, depth = todo.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return "a number that is none"
        if isinstance(one, str) and any("\ud800" <= char <= "\udfff" for char in one):
            return "half a surrogate pair"
        if isinstance(one, dict | list):
            if depth >= jsontext.MAX_DEPTH:
                return "too deep"
            inner = [*one, *one.values()] if isinstance(one, dict) else one
            todo += [(each, depth + 1) for each in inner]
    if re.search(r"[0-9.eE+-]{4300}", text):
        return "too many digits"
    return None


def json_text(data: bytes) -> bool:
    """Two JSON texts behind each other, or one beside itself: the strict reader, its writers, the canonical form."""
    first, _, second = data.partition(b"\x1e")
    values = []
    for raw in (first, second or first):
        try:
            value = jsontext.loads(raw)
        except jsontext.JsonError:
            try:
                text = raw.removeprefix(b"\xef\xbb\xbf").decode()
            except UnicodeDecodeError:
                return False
            law(_why_refused(text), "what is JSON by every rule is refused")
            return False
        text = raw.removeprefix(b"\xef\xbb\xbf").decode()
        law(same(value, json.loads(text)), "it is read as another value than Python reads")
        law(_why_refused(text) is None, f"it is taken, and there is a reason to refuse it: {_why_refused(text)}")
        written = jsontext.dumps(value)
        law(meaning(jsontext.loads(written)) == meaning(value), "what was written is read back as another value")
        law(jsontext.dumps(jsontext.loads(written)) == written, "written twice it is not the same bytes")
        shown = jsontext.dumps_inert(value)
        law(same(jsontext.loads(shown), value), "what is shown is read back as another value")
        law(plain.clean(shown) == shown, "what is shown has something in it that acts or hides")
        values.append((value, _canonical(value)))
    (one, its), (other, theirs) = values
    law(
        (its == theirs) == (meaning(one) == meaning(other)), "two wishes and one canonical form, or the other way round"
    )
    return True


def _canonical(value: Any) -> bytes:
    form = fingerprint.canonical(value)
    again = jsontext.loads(form)
    law(fingerprint.canonical(again) == form, "the canonical form of the canonical form is another one")
    law(meaning(again) == meaning(value), "the canonical form says another value")
    try:
        standard = rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        return form  # integers that the standard does not have
    law(form == standard, "the canonical form is not that of RFC 8785")
    return form


# --- making text inert -----------------------------------------------------------------------------------------------

_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HIDDEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | {chr(at) for at in range(0xFE00, 0xFE10)}


def sanitizer(data: bytes) -> bool:
    """Text from outside, made so that it can be looked at."""
    number, _, text = text_of(data).partition("|")
    limit = int(number) if re.fullmatch(r"[0-9]{1,3}", number, re.ASCII) else None
    for newlines in (False, True):
        shown = plain.clean(text, newlines=newlines)
        _inert(shown, newlines=newlines)
        law(plain.clean(shown, newlines=newlines) == shown, "cleaned twice it is another text")
        if text.isascii() and text.isprintable():
            law(shown == text, "plain text does not stay as it is")
        if limit is None:
            continue
        cut = plain.clean(text, limit=limit, newlines=newlines)
        _inert(cut, newlines=newlines)
        found = re.search(r"…\(\+([0-9]+)\)\Z", cut)
        head = cut[: found.start()] if found is not None and cut != shown else cut
        law(len(head) <= limit or cut == shown, "more is shown than the limit lets through")
        law(shown.startswith(head), "what is shown is not the beginning")
        if found is not None and cut != shown:
            law(1 <= int(found[1]) <= len(text), "what is left out is counted wrongly")
    return True


def _inert(shown: str, *, newlines: bool) -> None:
    marks = plain.MARKS
    for char in shown:
        if char == "\n" and newlines:
            marks = plain.MARKS
            continue
        kind = unicodedata.category(char)
        law(kind not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}, f"a character of the kind {kind} is let through")
        law(char not in _BIDI and char not in _HIDDEN, f"U+{ord(char):04X} is let through")
        marks = marks + 1 if kind in {"Mn", "Me"} else 0
        law(marks <= plain.MARKS, "more marks stand on one letter than may")


# --- dates and waits -------------------------------------------------------------------------------------------------


def dates(data: bytes) -> bool:
    """Retry-After, Date, times of bodies, durations: one a line, a second line being the Date header."""
    first, _, rest = text_of(data).partition("\n")
    taken = False
    date = schedule.http_date(first, NOW)
    if date is not None:
        taken = True
        law(date.tzinfo is UTC, "a date of HTTP is not in UTC")
        if first.endswith("GMT") and first[3] == "," and first[-6:-4] != "60" and date.year >= 1000:
            law(parsedate_to_datetime(first) == date, "Python reads another date")
        law(schedule.http_date(format_datetime(date, usegmt=True), NOW) == date, "written and read it is another date")
    wait = schedule.retry_after(first, NOW, rest or None)
    alone = [schedule.retry_after(part.strip(" \t"), NOW, rest or None) for part in first.split(";")]
    if len(alone) == 1:
        law(alone[0] == wait, "blanks around it count")
    twice = schedule.retry_after(f"7, {first}", NOW, rest or None)
    law(twice is not None and twice >= max(wait or timedelta(0), timedelta(0)), "one of two waits is passed over")
    for one in (wait, schedule.retry_after_ms(first), schedule.seconds(first)):
        law(one is None or timedelta(0) <= one <= timedelta(days=36525), "a wait is negative, or has no end")
    headers = {"retry-after": first, "retry-after-ms": rest, "date": rest}
    hint = schedule.read_hint(pages._STANDARD_HINTS, None, headers, NOW)
    law(hint is None or plain.clean(hint[1]) == hint[1], "the words of a hint act")
    for unit in ("s", "ms", "rfc3339"):
        moment = pages.moment_of(first, unit)
        law(moment is None or moment.tzinfo is UTC, "a provider's time is not in UTC")
    try:
        moment = model.from_rfc3339(first)
        law(model.from_rfc3339(model.to_rfc3339(moment)) == moment, "written and read it is another time")
        taken = True
    except ValueError:
        pass
    return taken | (wait is not None) | _duration(first)


def _duration(text: str) -> bool:
    taken = False
    for read in (durations.parse_duration, durations.parse_size, durations.parse_rate):
        try:
            value = read(text)
        except ValueError as error:
            law(plain.clean(str(error)) == str(error), "the sentence of a refusal acts")
            continue
        taken = True
        law(isinstance(value, timedelta | int) or value > 0, "a rate of nothing")
        if isinstance(value, timedelta):
            law(
                durations.parse_duration(durations.write_duration(value)) == value, "written and read it is another one"
            )
            law(durations.format_duration(value).isascii(), "a duration for people is no plain text")
    return taken


# --- URLs and origins ------------------------------------------------------------------------------------------------

_BASE: Final = "https://api.example.com"
_PORTS: Final = {"https": 443, "http": 80}
URLS: Final = parse(
    f"""
name = "urls"
base_url = "{_BASE}/v1"
result_hosts = ["files.example.net", "cdn.example.org:8443"]
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
[status]
path = "/jobs/{{job_id}}"
state = "/state"
[status.states]
succeeded = ["done"]
[result]
url = "/url"
""",
    environment={},
)


def _theirs(url: str) -> tuple[str, str, int] | None:
    """Return where the client that sends it would go, or None where it does not take the URL at all."""
    try:
        read = httpx.URL(url)
        return read.scheme, read.host.lower(), read.port or _PORTS.get(read.scheme, 0)
    except (httpx.InvalidURL, ValueError, UnicodeError):
        return None


def _ours(url: str) -> tuple[str, str, int]:
    scheme, _, rest = calls.origin_of(url).partition("://")
    host, _, port = rest.rpartition(":")
    return scheme, host, int(port)


def urls(data: bytes) -> bool:
    """A URL of an answer, a line, beside the URL that the answer came from: where may it lead?"""
    value, _, second = text_of(data).partition("\n")
    answer = second or f"{_BASE}/v1/jobs/7"
    origins = []
    for url in (value, answer):
        try:
            origins.append(calls.origin_of(url))
        except ValueError:
            continue
        law(calls.origin_of(origins[-1]) == origins[-1], "the origin of an origin is another one")
    allowed = {("https", "api.example.com", 443)}
    try:
        on_own = calls.origin_of(answer) == calls.origin_of(_BASE)
    except ValueError:
        on_own = False
    if not on_own:
        answer = f"{_BASE}/v1/jobs/7"  # an answer comes from where we asked
    own = requests.own_url(URLS, value, answer)
    if own is not None:
        law(_theirs(own) in (None, *allowed), "what passes for our own origin is another one to the client")
    allowed |= {("https", "files.example.net", 443), ("https", "cdn.example.org", 8443)}
    allowed |= {("https", "files.example.net", port) for port in [_port(value, answer)]}
    try:
        found: str | None = requests.result_url(URLS, value, answer)
    except Refused:
        found = None
    if found is not None:
        law(_theirs(found) in (None, *allowed), f"a result is read from {_theirs(found)}")
        read = requests.result_read(model_operation(), URLS, found)
        law(not read.secrets or calls.origin_of(read.url) == read.origin, "credentials go to another origin")
    _address(value)
    return own is not None or found is not None or bool(origins)


def _port(value: str, answer: str) -> int:
    """A host that is listed without a port is listed with all of them."""
    try:
        return _ours(requests.result_url(URLS, value, answer))[2]
    except (Refused, ValueError):
        return 443


def _address(text: str) -> None:
    try:
        kind = addresses.literal(text)
    except addresses.AddressRefused:
        return
    law(kind is None or addresses.literal(text.strip("[]")) == kind, "brackets change where an address is")


def model_operation() -> model.Operation:
    """A record of these contracts."""
    from tests.core.rules.operations import operation

    return operation(contract="urls", remote_job_id="job_7")


# --- deliveries ------------------------------------------------------------------------------------------------------

SECRET: Final = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes, ok").decode()
_HOOKS: Final = {
    "standard": 'scheme = "standard"\nevent_type = "/type"\ntoken = "/data/ref"\n',
    "github": (
        'scheme = "hmac"\nsignature = "header:X-Hub-Signature-256|^sha256=([0-9a-f]+)$"\nsigned = "{body}"\n'
        'event_id = "header:X-GitHub-Delivery"\n'
    ),
    "stripe": (
        'scheme = "hmac"\nsignature = "header:Stripe-Signature|v1=([0-9a-f]+)"\n'
        'timestamp = "header:Stripe-Signature|t=([0-9]+)"\nsigned = "{timestamp}.{body}"\nevent_id = "/id"\n'
    ),
    "hashed": (
        'scheme = "hmac"\nsignature = "header:X-Sig"\nencoding = "base64"\ntimestamp = "header:X-At"\n'
        'timestamp_unit = "rfc3339"\nsigned = "v0:{timestamp}:{header:X-User}:{body_sha256}"\n'
        "accept_when = 'body.account == \"a\"'\n"
    ),
    "static": 'scheme = "static_header"\nsignature = "header:X-Webhook-Token"\nevent_id = "/id"\n',
}


def _hook(more: str) -> Webhook:
    source = (
        'name = "hooks"\nbase_url = "https://api.example.com"\n[create]\nmethod = "POST"\npath = "/jobs"\n'
        'job_id = "/id"\n[status]\npath = "/jobs/{job_id}"\nstate = "/state"\n[status.states]\nsucceeded = ["done"]\n'
        f'[webhook]\nsecret = ["env:S"]\njob_id = "/data/id"\n{more}'
    )
    found = parse(source, environment={}).webhook
    assert found is not None
    return found


HOOKS: Final = {name: _hook(more) for name, more in _HOOKS.items()}


def _message(name: str, found: Mapping[str, str], body: bytes) -> bytes | None:
    """What is signed, by the words of each scheme and by none of the product's code."""
    wire = {key: value.encode("latin-1", "replace") for key, value in found.items()}
    if name == "standard":
        return b".".join((wire.get("webhook-id", b""), wire.get("webhook-timestamp", b""), body))
    if name == "github":
        return body
    if name == "stripe":
        at = re.search(r"t=([0-9]+)", found.get("stripe-signature", ""))
        return None if at is None else at[1].encode("latin-1", "replace") + b"." + body
    if name == "hashed":
        at_, user = wire.get("x-at"), wire.get("x-user")
        return None if not at_ or not user else b":".join((b"v0", at_, user, _hex(body)))
    return b""


def _hex(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _right(name: str, message: bytes) -> tuple[str, bytes]:
    key = base64.b64decode(SECRET.removeprefix("whsec_")) if name == "standard" else SECRET.encode()
    digest = hmac.new(key, message, hashlib.sha256).digest()
    if name == "static":
        return SECRET, SECRET.encode()
    return (base64.b64encode(digest).decode() if name in ("standard", "hashed") else digest.hex()), digest


def _taken_apart(data: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
    """Return scheme, headers and body; ``{sign}`` in a header becomes the right signature over what stands there."""
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    name = first.decode("latin-1") if first.decode("latin-1") in HOOKS else "standard"
    headers = []
    for line in lines:
        key, _, value = line.decode("latin-1").partition(":")
        headers.append((key.strip().lower(), value.strip()))
    message = _message(name, dict(headers), body)
    right = "" if message is None else _right(name, message)[0]
    return name, [(key, value.replace("{sign}", right)) for key, value in headers], body


def deliveries(data: bytes) -> bool:
    """A delivery under one of five schemes: taken only where another program finds the signature right."""
    name, headers, body = _taken_apart(data)
    hook = HOOKS[name]
    found = webhooks.verify(hook, body, headers, [SECRET], NOW)
    law(isinstance(found, Delivery | Refusal), "neither taken nor refused")
    if isinstance(found, Refusal):
        law(400 <= found.status < 600 and found.sentence, "a refusal has no answer")
        return False
    told = dict(headers)
    message = _message(name, told, body)
    law(message is not None, "taken, and a part of what is signed is missing")
    text, digest = _right(name, message or b"")
    given = " ".join(value for _, value in headers)
    candidates = re.findall(r"[A-Za-z0-9+/_=-]+", given)
    law(
        text in given or any(_decodes(one, digest) for one in candidates),
        "taken, and the right signature stands nowhere",
    )
    law(webhooks.verify(hook, body, headers, [SECRET], NOW) == found, "looked at twice it is another delivery")
    unsigned = webhooks.verify(hook, body, [*headers, ("x-not-signed", "1")], [SECRET], NOW)
    law(isinstance(unsigned, Delivery) and unsigned.key == found.key, "what nobody signed makes it another delivery")
    law(found.job_id is None or (pages.text_id(found.job_id) == found.job_id), "its job id is none")
    if webhooks.signs_body(hook):
        at = len(data) % (len(body) + 1)
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] if at < len(body) else body + b" "
        law(isinstance(webhooks.verify(hook, changed, headers, [SECRET], NOW), Refusal), "a changed body is taken")
    law(
        isinstance(webhooks.verify(hook, body, headers, [f"{SECRET[:-8]}AAAAAAA="], NOW), Refusal), "any secret will do"
    )
    return True


def _decodes(text: str, digest: bytes) -> bool:
    codes: tuple[TextCode, ...] = ("hex", "base64")
    for code in codes:
        try:
            if signing._decoded(text, code) == digest:
                return True
        except ValueError:
            continue
    return False


_AT: Final = str(int(NOW.timestamp())).encode()
_BODY: Final = b'{"type":"job.done","id":"evt_1","account":"a","data":{"id":9007199254740993,"ref":"op_1"}}'
_RFC: Final = b"2026-11-29T12:00:00Z"

TARGETS: Final = (
    Target(
        "json",
        json_text,
        (jsontext, fingerprint),
        ("words", "json"),
        (
            b'{"a":[1,1.0,-0.0,1e300,true,null,"\\u00e9\\ud83d\\ude00"],"b":{"":{}}}',
            b'{"id":9007199254740993}\x1e{"id":9007199254740993.0}',
            b"[1,2]\x1e[1.0,2e0]",
            b'{"\\ufb33":1,"\\ud83d\\ude00":2,"\\u20ac":3}',
            b"[" * 64 + b"]" * 64,
            b'"\\ud800"',
            b"1E400",
            b'{"a":1,"a":2}',
        ),
    ),
    Target(
        "plain",
        sanitizer,
        (plain,),
        ("words",),
        (b"5|plain text", "|e\u0301\u0301\u0301\u0301\u0301\u0301".encode(), b"|\x1b[2J\x9b", "3|\u202eabc\n".encode()),
        caches=(plain._SHAPES,),
    ),
    Target(
        "dates",
        dates,
        (schedule, durations),
        ("words", "lines"),
        (
            b"Sun, 29 Nov 2026 12:00:07 GMT\nSun, 29 Nov 2026 12:00:00 GMT",
            b"Sunday, 29-Nov-26 12:00:07 GMT",
            b"Sun Nov 29 12:00:07 2026",
            b"120",
            b"1.5",
            b"7, 9",
            b"2026-11-29T12:00:00.5+01:00",
            b"1h30m",
            b"64KiB",
            b"10/s",
            b"1764417600",
            b"0001-01-01T00:00:00+14:00",
            b"Sun, 29 Nov 2026 23:59:60 GMT",
        ),
    ),
    Target(
        "urls",
        urls,
        (calls, requests, addresses),
        ("words",),
        (
            b"https://api.example.com/v1/x",
            b"/v1/jobs/7?x=1#y",
            b"//files.example.net/a",
            b"https://files.example.net:444/a",
            b"https://cdn.example.org:8443/a",
            b"http://files.example.net/a",
            b"https://api.example.com@evil.example/",
            b"https://API.example.com:443/a\nhttps://api.example.com/v1",
            b"https://[::1]/",
            b"2130706433",
            "https://api.example\u3002com/".encode(),
            b"https://api.example.com%2eevil.example/",
            b"../../x",
            b"?a",
        ),
        (
            b"https://",
            b"api.example.com",
            b"files.example.net",
            b"cdn.example.org",
            b":8443",
            b"xn--",
            b"127.0.0.1",
            b"::ffff:",
        ),
    ),
    Target(
        "webhook",
        deliveries,
        (webhooks, signing, jsontext),
        ("words", "lines", "json"),
        (
            b"standard\nwebhook-id: evt_1\nwebhook-timestamp: " + _AT + b"\nwebhook-signature: v1,{sign}\n\n" + _BODY,
            b"github\nX-Hub-Signature-256: sha256={sign}\nX-GitHub-Delivery: 7\n\n" + _BODY,
            b"stripe\nStripe-Signature: t=" + _AT + b",v1={sign}\n\n" + _BODY,
            b"hashed\nX-Sig: {sign}\nX-At: " + _RFC + b"\nX-User: u\n\n" + _BODY,
            b"static\nX-Webhook-Token: {sign}\n\n" + _BODY,
        ),
        (b"{sign}", b"webhook-signature", b"v1a,", _AT, *(name.encode() for name in HOOKS)),
    ),
)


def contract_of(source: str) -> Contract:
    """A contract without an environment."""
    return parse(source, environment={})
