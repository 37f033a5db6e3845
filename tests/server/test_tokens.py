"""Tokens: what is verified, and what is refused and in which words."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tests.interop.waiting import holds

from headway.core.base.errors import ConfigError
from headway.core.permission import Identity
from headway.server.admin.api import Admin
from headway.server.config.auth.tables import JwtTable
from headway.server.config.reading import load_settings, parse_settings
from headway.server.engine.engine import Engine
from headway.server.logins import Refusal, tokens
from headway.server.logins.tokens import AWAY, NEVER_S, Tokens, read_jwks
from headway.server.reloading import Reloading
from headway.server.service import Service
from headway.server.systemd import NotifySocket

PRIVATE: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048), "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}  # fmt: skip
OTHER = rsa.generate_private_key(65537, 2048)
NOW = time.time()
CLAIMS: dict[str, Any] = {"sub": "ann", "iss": "us", "aud": "headway", "exp": int(NOW) + 86_400, "roles": ["desks"]}


def public(algorithm: str, key: Any = None, **more: str) -> dict[str, Any]:
    made = jwt.get_algorithm_by_name(algorithm).to_jwk((key or PRIVATE[algorithm]).public_key(), as_dict=True)
    return {**made, "kid": algorithm, "use": "sig", **more}


JWKS = {"keys": [public(algorithm) for algorithm in PRIVATE]}


def token(algorithm: str = "RS256", key: Any = None, kid: str | None = "", **claims: Any) -> bytes:
    said = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    headers = {} if kid is None else {"kid": kid or algorithm}
    return jwt.encode(said, key or PRIVATE[algorithm], algorithm, headers).encode()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(JWKS))
    return path


def test_a_reload_reads_the_keys_beside_the_loop(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    readers: list[Thread] = []

    def read(text: str) -> list[Any]:
        readers.append(current_thread())
        return read_jwks(text)

    monkeypatch.setattr(tokens, "read_jwks", read)
    source = tmp_path / "headway.toml"
    listener = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
    source.write_text(f'{listener}[auth.jwt]\nkeys_file = "{keys}"\n[pool]\ndisk_path = "{tmp_path}"\n')

    async def play() -> None:
        engine = Engine(load_settings(source), asyncio.get_running_loop())
        before, reloading = engine.logins.tokens, Reloading(engine, [], Admin(engine), Service(engine, NotifySocket()))
        reloading.ask()
        await holds(lambda: len(readers) == 2 and not reloading._reading)
        assert engine.logins.tokens is not before
        keys.write_text("{}")  # noqa: ASYNC240
        reloading.ask()
        await holds(lambda: "reload: nothing was changed: auth.jwt.keys_file" in caplog.text)
        engine.stop()

    asyncio.run(play())
    assert [reader is main_thread() for reader in readers] == [True, False, False]


Verify = Callable[..., Identity | Refusal]


@pytest.fixture
def verify(keys: Path) -> Iterator[Verify]:
    made: list[Tokens] = []

    def verify_one(said: bytes, **table: Any) -> Identity | Refusal:
        loop = asyncio.new_event_loop()
        made.append(Tokens(JwtTable.model_validate({"keys_file": str(keys), **table}), loop))
        loop.close()
        return made[-1].verify(said)

    yield verify_one
    for one in made:
        one.close()


@pytest.mark.parametrize("algorithm", PRIVATE)
@pytest.mark.parametrize("kid", ["", None])
def test_tokens_of_each_algorithm(verify: Verify, algorithm: str, kid: str | None) -> None:
    found = verify(token(algorithm, kid=kid), issuer="us", audience="headway", groups="roles")
    assert found == Identity("ann", ("desks",), elsewhere=True, until_s=CLAIMS["exp"])


def test_the_user_and_the_groups_are_claims_that_the_config_names(verify: Verify) -> None:
    said = token(email="ann@x", scope="a b")
    assert verify(said) == Identity("ann", (), True, CLAIMS["exp"])
    assert verify(said, user="email", groups="scope", disconnect=False) == Identity("ann@x", ("a", "b"), True, None)
    assert verify(said, leeway="10s") == Identity("ann", (), True, CLAIMS["exp"] + 10.0)


def test_a_token_may_say_that_it_never_ends(verify: Verify) -> None:
    assert verify(token(exp=10**400)) == Identity("ann", (), True, NEVER_S)


def forged(algorithm: str, secret: bytes = b"") -> bytes:
    """A token that says of itself how it is to be verified."""
    parts = [json.dumps(part).encode() for part in ({"alg": algorithm, "typ": "JWT", "kid": "RS256"}, CLAIMS)]
    said = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = hmac.new(secret, said, hashlib.sha256).digest() if secret else b""
    return said + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


def pem(key: Any) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (token(exp=int(NOW) - 5), "has expired"), (token(exp=None), "lacks a claim"),
        (token(nbf=int(NOW) + 80_000), "not valid yet"), (token(iss="them"), "by another issuer"),
        (token(iss=None), "lacks a claim"), (token(aud="others"), "for another audience"),
        (token(aud=None), "lacks a claim"), (token(sub=None), "has no user in its claim 'sub'"),
        (token(sub=""), "has no user"), (token(sub="a\nb"), "has no user"), (token(sub="x" * 201), "has no user"),
        (token(key=OTHER), "signature is wrong"), (token(key=OTHER, kid=None), "signature is wrong|cannot be used"),
        (token()[:-10], "signature is wrong|cannot be"), (token(kid="unknown"), "a key that is not known"),
        (token("ES256", kid="RS256"), "cannot be used"),
        (token("RS512", PRIVATE["RS256"], kid="RS256"), "cannot be used"),
        (forged("none"), "cannot be used"), (forged("HS256", pem(PRIVATE["RS256"])), "cannot be used"),
        (b"eyJ4.eyJ4.eyJ4", "cannot be read"), (token(roles=7), "no list of groups"),
        (token(roles=[7]), "no list of groups"), (token(exp=str(int(NOW) + 86_400)), "'exp' is no number"),
        (token(exp=float("inf")), "cannot be used"), (token(nbf=[]), "cannot be used"),
    ],
)  # fmt: skip
def test_tokens_that_let_nobody_in(verify: Verify, said: bytes, says: str) -> None:
    found = verify(said, issuer="us", audience="headway", groups="roles")
    assert isinstance(found, Refusal)
    assert re.search(says, found.text), found.text
    assert not found.away


def test_algorithms_may_be_fewer(verify: Verify) -> None:
    assert isinstance(verify(token("ES256"), algorithms=["ES256"]), Identity)
    assert isinstance(verify(token("RS256"), algorithms=["ES256"]), Refusal)


@pytest.mark.parametrize(
    "entries",
    [
        [{"kty": "oct", "k": "c2VjcmV0", "kid": "RS256", "alg": "HS256"}], [public("RS256", alg="RS512")],
        [public("RS256", use="enc")], [{"kty": "RSA"}], [7], [],
        [{"kty": "EC", "crv": "P-384"}],
    ],
)  # fmt: skip
def test_keys_of_other_kinds_are_not_used(entries: list[Any]) -> None:
    with pytest.raises(ConfigError, match="has no key that can be used"):
        read_jwks(json.dumps({"keys": entries}))
    assert [key.algorithm for key in read_jwks(json.dumps({"keys": [*entries, public("EdDSA")]}))] == ["EdDSA"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"keys": 7}', "7", b'{"keys": ["\xff"]}', "[" * 30_000 + "]" * 30_000]
)
def test_what_is_no_jwks(text: str | bytes) -> None:
    with pytest.raises(ConfigError, match="is not a JWKS"):
        read_jwks(text)


# -- keys by URL -------------------------------------------------------------------------------------------------------


class Keys:
    """A server of keys. ``text`` None: it fails."""

    def __init__(self) -> None:
        self.text: str | None = json.dumps(JWKS)
        self.asked = 0
        self.url = ""


@contextmanager
def serving() -> Iterator[Keys]:
    keys = Keys()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.asked += 1
            self.send_response(200 if keys.text is not None else 500)
            self.end_headers()
            self.wfile.write((keys.text or "").encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        keys.url = f"http://127.0.0.1:{server.server_address[1]}/keys"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield keys
        finally:
            server.shutdown()
            thread.join()


def test_keys_are_fetched_once_and_again_for_one_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("headway.server.logins.tokens.time.monotonic", lambda: now[0])
    loop = asyncio.new_event_loop()
    with serving() as keys:
        tokens = Tokens(JwtTable.model_validate({"keys_url": keys.url, "refresh": "1h"}), loop)
        keys.text = None
        assert tokens.verify(token()) == AWAY
        keys.text = json.dumps({"keys": [public("RS256")]})
        assert tokens.verify(token()) == AWAY  # it was asked just now
        assert keys.asked == 1
        now[0] += 31.0
        for _ in range(3):
            assert isinstance(tokens.verify(token()), Identity)
        assert keys.asked == 2
        assert isinstance(tokens.verify(token("ES256")), Refusal)
        assert keys.asked == 2  # not so soon again
        now[0] += 31.0
        keys.text = json.dumps(JWKS)
        assert isinstance(tokens.verify(token("ES256")), Identity)
        assert keys.asked == 3
        now[0] += 3601.0
        keys.text = "nonsense"
        assert isinstance(tokens.verify(token("ES256")), Identity)  # the old keys stay
        assert keys.asked == 4
        tokens.close()
    loop.close()


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("", "either in keys_file or in keys_url"), ('keys_file = "x"\nkeys_url = "http://x"', "either in keys_file"),
        ('keys_url = "x"', r"auth\.jwt\.keys_url: .* is not a URL"),
        ('keys_file = "x"\nalgorithms = ["HS256"]', "HS256.* is none of RS256, ES256, EdDSA"),
        ('keys_file = "x"\nalgorithms = []', "is empty"), ('keys_fil = "x"', "did you mean keys_file"),
    ],
)  # fmt: skip
def test_mistakes(written: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_settings(f"[auth.jwt]\n{written}\n")
