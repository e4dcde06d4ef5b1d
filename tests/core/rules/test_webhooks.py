from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st

from opledger.errors import ConfigWrong
from opledger.rules import webhooks
from opledger.rules.contract import Webhook
from opledger.rules.files.contract import ContractInvalid, parse
from opledger.rules.webhooks import Delivery, Kind, Refusal, verify

SMALL = """\
name = "jobs"
base_url = "https://api.example.com"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
[status]
path = "/jobs/{job_id}"
state = "/state"
[status.states]
succeeded = ["done"]
[webhook]
secret = ["env:NEW", "env:OLD"]
job_id = "/data/id"
"""
BARE = SMALL.partition("[webhook]")[0]
HEAD = 'scheme = "hmac"\nsecret = "env:S"\njob_id = "/id"\n'
SIGNED = HEAD + 'signature = "header:s"\n'
STANDARD = 'scheme = "standard"\nevent_type = "/type"\ntoken = "/data/ref"\n'
STRIPE = """\
scheme = "hmac"
signature = "header:Stripe-Signature|v1=([0-9a-f]+)"
timestamp = "header:Stripe-Signature|t=([0-9]+)"
signed = "{timestamp}.{body}"
event_id = "/id"
"""
GITHUB = """\
scheme = "hmac"
signature = "header:X-Hub-Signature-256|^sha256=([0-9a-f]+)$"
signed = "{body}"
event_id = "header:X-GitHub-Delivery"
"""
SLACK = """\
scheme = "hmac"
signature = "header:X-Slack-Signature|^v0=([0-9a-f]+)$"
timestamp = "header:X-Slack-Request-Timestamp"
signed = "v0:{timestamp}:{body}"
"""
CLOUDCONVERT = 'scheme = "hmac"\nsignature = "header:CloudConvert-Signature"\nsigned = "{body}"\n'
FAL = r"""
scheme = "ed25519"
signature = "header:X-Fal-Webhook-Signature"
timestamp = "header:X-Fal-Webhook-Timestamp"
event_id = "header:X-Fal-Webhook-Request-Id"
signed = "{id}\n{header:X-Fal-Webhook-User-Id}\n{timestamp}\n{body_sha256}"
"""
STATIC = 'scheme = "static_header"\nsignature = "header:X-Webhook-Token"\nevent_id = "/id"\n'

AT = 1_614_265_330
NOW = datetime.fromtimestamp(AT, UTC)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # of the standard's own example
OTHER = "whsec_" + base64.b64encode(b"another secret of 32 bytes or so").decode()
BODY = json.dumps({"type": "job.done", "id": "evt_1", "data": {"id": 9007199254740993, "ref": "op_1"}}).encode()


def webhook(more: str) -> Webhook:
    """The webhook part of a contract."""
    found = parse(SMALL + more, environment={}).webhook
    assert found is not None
    return found


def problems(more: str) -> list[str]:
    """The keys that are wrong."""
    with pytest.raises(ContractInvalid) as caught:
        parse(BARE + "[webhook]\n" + more, environment={})
    return [problem.key for problem in caught.value.problems]


def mac(secret: str, message: bytes, digest: str = "sha256") -> str:
    """A signature in hex, worked out here by hand."""
    return hmac.new(secret.encode(), message, digest).hexdigest()


def standard(body: bytes = BODY, secret: str = SECRET, event: str = "msg_1", at: int = AT) -> list[tuple[str, str]]:
    """The headers of a delivery as the standard has them."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = base64.b64encode(hmac.digest(key, f"{event}.{at}.".encode() + body, "sha256")).decode()
    return [("webhook-id", event), ("webhook-timestamp", str(at)), ("webhook-signature", f"v1,{made}")]


def stripe(body: bytes = BODY, secret: str = "s", at: int = AT) -> list[tuple[str, str]]:
    """The headers of a delivery as Stripe has them."""
    made = mac(secret, f"{at}.".encode() + body)
    return [("stripe-signature", f"t={at},v1={made},v0={'0' * 64}")]


def kind(found: Delivery | Refusal) -> Kind:
    """Why it was refused, which it must have been."""
    assert isinstance(found, Refusal), found
    return found.kind


def taken(found: Delivery | Refusal) -> Delivery:
    """The delivery, which must have been taken."""
    assert isinstance(found, Delivery), found
    return found


# --- known answers ----------------------------------------------------------------------------------------------


def test_the_example_of_the_standard_is_right() -> None:
    """If our reading of the standard were wrong, our own signatures would agree with it all the same."""
    headers = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", str(AT)),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ]
    found = taken(verify(webhook(STANDARD), b'{"test": 2432232314}', headers, [SECRET], NOW))
    assert found == Delivery("id:msg_p5jXN8AQM9LWM0D4loKWxJek", None, None, None)


def test_the_example_of_github_is_right() -> None:
    """Its documentation signs a text that is no JSON: the signature is right, and only then the body is looked at."""
    headers = [
        ("x-hub-signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"),
    ]
    secret = "It's a Secret to Everybody"
    assert kind(verify(webhook(GITHUB), b"Hello, World!", headers, [secret], NOW)) is Kind.MALFORMED
    assert kind(verify(webhook(GITHUB), b"Hello, World?", headers, [secret], NOW)) is Kind.SIGNATURE


def test_the_example_of_slack_is_right() -> None:
    """Version, time and body are signed together."""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name="
        b"foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F"
        b"hooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015."
        b"47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = [
        ("x-slack-signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
        ("x-slack-request-timestamp", "1531420618"),
    ]
    now = datetime.fromtimestamp(1_531_420_618, UTC)
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    assert kind(verify(webhook(SLACK), body, headers, [secret], now)) is Kind.MALFORMED
    assert kind(verify(webhook(SLACK), body, headers, [secret], now + timedelta(hours=1))) is Kind.STALE


def test_the_schemes_of_stripe_and_cloudconvert_can_be_said() -> None:
    """Each by hand: what is signed, where the signature stands, and which id tells one event from another."""
    found = taken(verify(webhook(STRIPE), BODY, stripe(), ["new", "s"], NOW))
    assert found == Delivery("id:evt_1", None, "9007199254740993", None)
    signed = [("cloudconvert-signature", mac("k", BODY))]
    found = taken(verify(webhook(CLOUDCONVERT), BODY, signed, ["k"], NOW))
    assert found.key == f"sha256:{hashlib.sha256(BODY).hexdigest()}"


def test_a_key_set_verifies_ed25519() -> None:
    """Several keys in one JWKS document, and a signed text of several lines over the body's digest."""
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = private.public_key().public_bytes_raw()
    jwks = {
        "keys": [
            {"kty": "EC", "crv": "P-256", "x": "AAAA"},
            {"kty": "OKP", "crv": "Ed25519", "x": base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")},
            {"kty": "OKP", "crv": "Ed25519", "x": base64.urlsafe_b64encode(public).decode().rstrip("=")},
        ]
    }
    message = f"req_1\nuser_1\n{AT}\n{hashlib.sha256(BODY).hexdigest()}".encode()
    headers = [
        ("x-fal-webhook-signature", private.sign(message).hex()),
        ("x-fal-webhook-timestamp", str(AT)),
        ("x-fal-webhook-request-id", "req_1"),
        ("x-fal-webhook-user-id", "user_1"),
    ]
    scheme = webhook(FAL)
    for secret in (json.dumps(jwks), public.hex(), base64.b64encode(public).decode()):
        assert taken(verify(scheme, BODY, headers, [secret], NOW)).key == "id:req_1"
        assert kind(verify(scheme, BODY + b" ", headers, [secret], NOW)) is Kind.SIGNATURE
        assert kind(verify(scheme, BODY, headers[:-1], [secret], NOW)) is Kind.UNSIGNED
    assert kind(verify(scheme, BODY, headers, [bytes(31 * [7] + [0]).hex()], NOW)) is Kind.SIGNATURE


def test_the_standard_may_be_signed_by_a_key_pair() -> None:
    """Its v1a signatures; a v1 signature never counts for such a key, nor the other way round."""
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = "whpk_" + base64.b64encode(private.public_key().public_bytes_raw()).decode()
    made = base64.b64encode(private.sign(f"msg_1.{AT}.".encode() + BODY)).decode()
    headers = [*standard()[:2], ("webhook-signature", f"v1a,{made}")]
    assert taken(verify(webhook(STANDARD), BODY, headers, [public], NOW)).key == "id:msg_1"
    assert kind(verify(webhook(STANDARD), BODY, standard(), [public], NOW)) is Kind.SIGNATURE
    assert kind(verify(webhook(STANDARD), BODY, headers, [SECRET], NOW)) is Kind.SIGNATURE


def test_a_static_header_tells_the_sender_and_nothing_of_the_body() -> None:
    """So an event id in the body decides nothing: anybody who heard the header once could name any."""
    scheme = webhook(STATIC)
    found = taken(verify(scheme, BODY, [("x-webhook-token", "s3cret")], ["s3cret"], NOW))
    assert found.key.startswith("sha256:")
    assert kind(verify(scheme, BODY, [("x-webhook-token", "s3cre")], ["s3cret"], NOW)) is Kind.SIGNATURE
    assert kind(verify(scheme, BODY, [], ["s3cret"], NOW)) is Kind.UNSIGNED
    assert not webhooks.signs_body(scheme)
    assert not webhooks.signs_event_id(scheme)


# --- rotation, time, headers ------------------------------------------------------------------------------------


def test_during_a_rotation_old_and_new_secrets_count() -> None:
    """On our side several secrets, on theirs several signatures; one right pair is enough."""
    scheme = webhook(STANDARD)
    assert isinstance(verify(scheme, BODY, standard(secret=OTHER), [SECRET, OTHER], NOW), Delivery)
    both = [*standard()[:2], ("webhook-signature", f"{standard(secret=OTHER)[2][1]} {standard()[2][1]} v9,xx")]
    assert isinstance(verify(scheme, BODY, both, [SECRET], NOW), Delivery)
    assert kind(verify(scheme, BODY, standard(secret=OTHER), [SECRET], NOW)) is Kind.SIGNATURE


@pytest.mark.parametrize(
    "make", [lambda at: (STANDARD, standard(at=at), SECRET), lambda at: (STRIPE, stripe(at=at), "s")]
)
@pytest.mark.parametrize(
    ("ahead", "expected"),
    [(-301, Kind.STALE), (-300, None), (0, None), (300, None), (301, Kind.FUTURE), (-86_400, Kind.STALE)],
)
def test_a_signed_time_counts_to_both_sides(make: Any, ahead: int, expected: Kind | None) -> None:
    """A replay is as old as it is; a time ahead could be replayed for as long as it lies ahead."""
    scheme, headers, secret = make(AT + ahead)
    found = verify(webhook(scheme), BODY, headers, [secret], NOW)
    assert (found.kind if isinstance(found, Refusal) else None) is expected


def test_a_forged_time_is_a_wrong_signature_first() -> None:
    """What is counted as a replay was signed by the provider once."""
    old = [(name, "1" if name == "webhook-timestamp" else value) for name, value in standard()]
    assert kind(verify(webhook(STANDARD), BODY, old, [SECRET], NOW)) is Kind.SIGNATURE


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_header_that_counts_may_stand_there_once(name: str) -> None:
    """Two values are two readings."""
    headers = standard()
    assert kind(verify(webhook(STANDARD), BODY, [*headers, (name, dict(headers)[name])], [SECRET], NOW)) is (
        Kind.MALFORMED
    )
    without = [pair for pair in headers if pair[0] != name]
    assert kind(verify(webhook(STANDARD), BODY, without, [SECRET], NOW)) is Kind.UNSIGNED


def test_an_id_that_is_not_signed_tells_nothing_apart() -> None:
    """A replayed delivery under a new id is the same delivery."""
    signed = [("x-hub-signature-256", "sha256=" + mac("s", BODY))]
    first = taken(verify(webhook(GITHUB), BODY, [*signed, ("x-github-delivery", "1")], ["s"], NOW))
    again = taken(verify(webhook(GITHUB), BODY, [*signed, ("x-github-delivery", "2")], ["s"], NOW))
    assert first.key == again.key
    assert not webhooks.signs_event_id(webhook(GITHUB))
    assert all(webhooks.signs_event_id(webhook(text)) for text in (STANDARD, STRIPE, FAL))


@pytest.mark.parametrize(
    "body",
    [b'{"data": {"id": "a", "id": "b"}}', b"{", b'{"x": NaN}', b"\xff", b"[" * 100 + b"]" * 100, b'"\\ud800"', b""],
)
def test_a_body_that_can_be_read_in_two_ways_is_refused(body: bytes) -> None:
    """Although it is signed: duplicate keys, half characters and depth have fooled signed systems before."""
    assert kind(verify(webhook(STANDARD), body, standard(body), [SECRET], NOW)) is Kind.MALFORMED
    assert kind(verify(webhook(STANDARD), body, standard(body, OTHER), [SECRET], NOW)) is Kind.SIGNATURE


def test_what_is_meant_for_another_tenant_is_refused() -> None:
    """One secret may serve many accounts; what cannot be judged is not ours."""
    scheme = webhook(STANDARD + "accept_when = 'body.account == \"acct_218\"'\n")
    ours, theirs = (json.dumps({"account": name}).encode() for name in ("acct_218", "acct_219"))
    assert isinstance(verify(scheme, ours, standard(ours), [SECRET], NOW), Delivery)
    assert kind(verify(scheme, theirs, standard(theirs), [SECRET], NOW)) is Kind.WRONG_TENANT
    assert kind(verify(scheme, BODY, standard(), [SECRET], NOW)) is Kind.WRONG_TENANT


def test_without_a_secret_that_can_be_used_nothing_is_judged() -> None:
    """A typing mistake in a secret must not look like a forgery; and one good secret is enough."""
    for secrets in ([], ["whsec_!!"], ["whsec_"]):
        with pytest.raises(ConfigWrong, match="no webhook secret can be used") as caught:
            verify(webhook(STANDARD), BODY, standard(), secrets, NOW)
        assert "!!" not in str(caught.value)
    assert isinstance(verify(webhook(STANDARD), BODY, standard(), ["whsec_!!", SECRET], NOW), Delivery)


def test_every_refusal_has_an_answer_and_a_sentence() -> None:
    """And no sentence tells a stranger more than it knew."""
    assert set(webhooks.STATUS) == set(webhooks.SENTENCES) == set(Kind)
    assert {Refusal(one).status for one in Kind} == {400, 401, 404, 408, 413, 429, 503}
    assert Refusal(Kind.STALE).sentence.startswith("the signed time")


# --- properties -------------------------------------------------------------------------------------------------


@given(body=st.binary(max_size=200), at=st.integers(0, 2**37), event=st.text("abc.|_-", min_size=1, max_size=20))
def test_what_was_signed_with_our_secret_passes_and_nothing_else(body: bytes, at: int, event: str) -> None:
    """Whatever the bytes: never an exception, and never a signature refusal for a right signature."""
    now = datetime.fromtimestamp(at, UTC)
    found = verify(webhook_standard, body, standard(body, event=event, at=at), [OTHER, SECRET], now)
    assert isinstance(found, Delivery) or found.kind is Kind.MALFORMED
    forged = verify(webhook_standard, body, standard(body, OTHER, event, at), [SECRET], now)
    assert kind(forged) is Kind.SIGNATURE


@example(place=46, bit=5, where="signature")  # its padding
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7), where=st.sampled_from(["body", "id", "time", "signature"]))
def test_one_bit_anywhere_breaks_it(place: int, bit: int, where: str) -> None:
    """Body, id, time and signature are all under the signature."""
    headers, body = dict(standard()), bytearray(BODY)

    def turned(text: str) -> str:
        raw = bytearray(text.encode())
        raw[place % len(raw)] ^= 1 << bit
        return raw.decode("latin-1")

    if where == "body":
        body[place % len(body)] ^= 1 << bit
    else:
        name = {"id": "webhook-id", "time": "webhook-timestamp", "signature": "webhook-signature"}[where]
        headers[name] = turned(headers[name])
    found = verify(webhook_standard, bytes(body), list(headers.items()), [SECRET], NOW)
    # The last character of base64 has bits that say nothing, its padding says nothing: such a signature is the same.
    same = where == "signature" and isinstance(found, Delivery)
    if same:
        unpadded = headers["webhook-signature"][3:].rstrip("=\x1d")
        assert base64.b64decode(f"{unpadded}==") == base64.b64decode(standard()[2][1][3:])
    else:
        assert kind(found) in (Kind.SIGNATURE, Kind.UNSIGNED)


@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "stripe-signature", "x"]),
            st.text(st.characters(max_codepoint=255), max_size=40),
        ),
        max_size=6,
    ),
    body=st.binary(max_size=40),
)
def test_rubbish_is_refused_and_breaks_nothing(headers: Sequence[tuple[str, str]], body: bytes) -> None:
    """Anybody may send anything."""
    for scheme in (webhook_standard, webhook_stripe):
        assert isinstance(verify(scheme, body, headers, [SECRET], NOW), Refusal)


webhook_standard = replace(webhook(STANDARD))
webhook_stripe = replace(webhook(STRIPE))


# --- contracts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ('scheme = "standard"\njob_id = "/id"\n', ["webhook.secret"]),
        ('scheme = "standard"\nsecret = []\njob_id = "/id"\n', ["webhook.secret"]),
        ('scheme = "standard"\nsecret = "env:S"\n', ["webhook"]),
        ('scheme = "standard"\nsecret = "env:S"\njob_id = "/id"\nsigned = "{body}"\n', ["webhook.signed"]),
        (HEAD, ["webhook.signature", "webhook.signed"]),
        (HEAD + 'signature = "/sig"\nsigned = "{body}"\n', ["webhook.signature"]),
        (SIGNED + 'signed = "{timestamp}.{body}"\n', ["webhook.timestamp"]),
        (SIGNED + 'signed = "{body}"\ntimestamp = "header:t"\n', ["webhook.timestamp"]),
        (SIGNED + 'signed = "{id}{body}"\nevent_id = "/id"\n', ["webhook.event_id"]),
        (SIGNED + 'signed = "{body"\n', ["webhook.signed"]),
        ('scheme = "static_header"\nsecret = "env:S"\njob_id = "/id"\n', ["webhook.signature"]),
        (
            'scheme = "static_header"\nsecret = "env:S"\njob_id = "/id"\nsignature = "header:s"\ntolerance = "5m"\n',
            ["webhook.tolerance"],
        ),
    ],
)
def test_a_contract_that_cannot_verify_is_refused(more: str, keys: list[str]) -> None:
    """What is missing, and what would silently have no effect, is named by its key."""
    assert problems(more) == keys


def test_no_webhook_is_said_by_a_word_or_by_silence() -> None:
    """Both mean that nothing is received."""
    assert parse(BARE, environment={}).webhook is None
    assert parse(BARE + '[webhook]\nscheme = "none"\n', environment={}).webhook is None
