"""Secrets in the settings of other systems, and how a value is shown without them.

Whatever an import prints of a foreign file goes through here: comments of the config, lines of the report, errors.

Rules:
- A name says secret if one of its words does: password, secret, token, psk, passphrase, credentials, an API key. It
  does not if its last word says that the value is something about the secret: ``password_file``, ``psk_hint``.
- Credentials, cookies and keys may also be named by a file (``credentials: /etc/nats.creds``), which stays. So does a
  switch: ``proxy_auth = off``.
- ``key`` alone may be a topic's key, a routing key or a file. It says secret with the word of a purpose before it:
  ``signing_key``, ``SecretKey``.
- Within any value, the password of an address is hidden and its user stays, so that the line still says which server
  is meant. Parameters, attributes and words (``auth-pass NAME PW``) are judged by their names, as settings are.
- Tokens, hashes and keys that have a form of their own are hidden wherever they stand.

In doubt a value is hidden: a reader can look it up in the file, and what is printed once stays in a terminal, a ticket
or a repository.
"""

from __future__ import annotations

import re

HIDDEN = "***"
"""Stands for a secret."""

# -- names -------------------------------------------------------------------------------------------------------------


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ANYWHERE = re.compile(r"passw|passcode|passphrase|secret|token(?!iz)|psk|credential|apikey|accesskey|privatekey")
"""Parts of words, for many names are written without anything between their words: ``ldapsearchpassword``."""
_WHOLE = frozenset(("pass", "pwd", "pw", "otp", "totp", "sig", "signature", "jwt", "cookie", "cookies", "nkey",
                    "nkeys"))  # fmt: skip
_END = re.compile(r"(?<!by)(?<!com)(?<!tres)(pass|pwd)")
_MAY_BE_A_FILE = re.compile(r"credential|key|cookie|jwt")
_PURPOSES = frozenset((
    "access", "account", "api", "auth", "cipher", "client", "crypto", "decryption", "encryption", "hmac", "license",
    "master", "private", "secret", "session", "shared", "sign", "signing", "ssh", "websocket", "websockets",
))  # fmt: skip
_ABOUT = frozenset((
    "alg", "algorithm", "authenticator", "class", "claim", "claims", "count", "dir", "directory", "enabled", "encoding",
    "endpoint", "factory", "file", "files", "filename", "folder", "format", "header", "hint", "interval", "length",
    "limit", "location", "max", "min", "mode", "module", "name", "path", "plugin", "policy", "provider", "required",
    "scope", "scopes", "size", "timeout", "ttl", "type", "uri", "url", "user", "username",
))  # fmt: skip
"""Last words of names of settings about a secret, which have none themselves."""
_SWITCH = re.compile(r"(?i)\s*(yes|no|y|n|true|false|on|off|none|enabled|disabled|optional|required|need|want)?\s*")
_FOLDERS = re.compile(r"\s*(file:)?(\.{0,2}/|~/|[A-Za-z]:\\)[^\s?=&+@;,]*\s*")
_EXTENSION = re.compile(r"\.(pem|key|crt|cer|der|p12|pfx|jks|ks|creds|nk|jwt|txt|conf|json|pub|erl|cookie)\s*$", re.I)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def names_secret(name: str, value: str = "") -> bool:
    """True if a setting of this name has a secret for its value. ``value``: seen where the name alone does not tell."""
    words = _words(name)
    if not words or words[-1] in _ABOUT:
        return False
    if any(_says_secret(part, value) for part in re.split(r"[.\s]+", name)):
        return True
    # An "auth" alone is a switch, or names a method; one that ends a longer name (masterauth) is a login.
    return (words[-1] != "auth" or len(words) > 1) and words[-1].endswith("auth") and not _SWITCH.fullmatch(value)


def _says_secret(part: str, value: str) -> bool:
    words = _words(part)
    if not words or words[-1] in _ABOUT:
        return False
    for word, before in zip(words, ["", *words], strict=False):
        if word in ("key", "keys") and before in _PURPOSES:
            found = not _SWITCH.fullmatch(value)
        else:
            found = word in _WHOLE or bool(_ANYWHERE.search(word) or _END.search(word, max(0, len(word) - 4)))
        if found and not (_MAY_BE_A_FILE.search(word) and (_is_file(value) or not value)):
            return True
    return False


def _is_file(value: str) -> bool:
    return _FOLDERS.fullmatch(value) is not None or (_EXTENSION.search(value) is not None and "@" not in value)


# -- values ------------------------------------------------------------------------------------------------------------


_PEM = re.compile(r"-----BEGIN .*?(-----END [^-]*-----|\Z)", re.DOTALL)
_OWN_FORM = re.compile(
    r"\beyJ[\w-]{6,}(\.[\w-]+)*"  # a JSON web token
    r"|\$(2[abxy]|5|6|7|y|argon2\w*|scrypt|pbkdf2[\w-]*|scram[\w-]*)\$\S+"  # hashes of crypt
    r"|\{S?SHA\d*\}\S+|\{SCRYPT\}\S+"  # and of LDAP
    r"|(?<=\bBasic )[\w+/=.-]{8,}|(?<=\bBearer )[\w+/=.-]{8,}"  # logins of HTTP
    r"|\b[SUAONCX][A-Z2-7]{55,57}\b"  # keys and seeds of NATS
    r"|(?<![\w/+.-])(?=[0-9]*[a-fA-F])[0-9a-fA-F]{32,}(?![\w/+.-])"  # keys in hexadecimal
    r"|(?<![\w/+.-])(?=[\w/+-]*[0-9])(?=[\w/+-]*[a-z])(?=[\w/+-]*[A-Z])[A-Za-z0-9+_-][A-Za-z0-9/+_-]{39,}={0,2}"
)
_LOGIN = re.compile(r"(://[^\s:/@?#<>]*:)(?:(?:(?!://)[^\s<>?])*@|(?:(?!://)[^\s<>])*?@)")
"""A login in an address. A password may have anything in it but spaces, so the last ``@`` before a query ends it."""
_LOGIN_ALONE = re.compile(
    r"((?:^|[\s,;(\"'=:])(?:(?:amqps?|tcp|ssl|rdma|jdbc:\w+:\w+):)?(?!\w+://)[\w.%+-]+[:/])(?!//)"
    r"(?:(?!://)[^\s@<>])*?@(?=[\w/\[$*.])"
)
"""A login without ``//`` before it, as AMPS, Qpid (``amqp:u/PW@h``) and Oracle's driver write it."""
_TOKEN_ALONE = re.compile(r"(\b(?:nats|nats-route|nats-leaf|leafnode|nats-gateway)://)[^\s:/@]+@")
"""NATS takes a name without a password for a token."""
_PAIR = re.compile(r"(?<![\w.])([A-Za-z][\w.-]*)(\\?[\"']?\s*(?:=>|[=:])\s*)(?!//)(?=\S)")
_QUOTED = re.compile(r"(\\?[\"'])(.*?)(?:\1|\Z)", re.DOTALL)
_NEXT_PAIR = re.compile(r"[&;,\s]+\\?[\"']?[A-Za-z][\w.-]*\\?[\"']?\s*[=:]")
_ELEMENT = re.compile(r"<([\w:.-]+)([^<>]*)>([^<]+)")
_WORD_PAIR = re.compile(r"(?:^|[\s=?&;,:(\"'])-{0,2}([A-Za-z][\w.-]*)\s+(?=\S)")


CHARS_MAX = 4000
"""The length of the beginning that is looked at and returned: nobody reads more, and a file of many long texts should
not take minutes."""


def hide(text: str) -> str:
    """Returns a text without the secrets in it that can be told by their form, or by a name before them."""
    if len(text) > CHARS_MAX:
        # What stands near the cut may be half of a secret.
        return hide(text[:CHARS_MAX])[: CHARS_MAX // 2] + "..."
    text = _PEM.sub(HIDDEN, text)
    text = _OWN_FORM.sub(HIDDEN, text)
    if "@" in text:
        text = _LOGIN.sub(rf"\g<1>{HIDDEN}@", text)
        text = _TOKEN_ALONE.sub(rf"\g<1>{HIDDEN}@", text)
        text = _LOGIN_ALONE.sub(rf"\g<1>{HIDDEN}@", text)
    if "<" in text:
        text = _ELEMENT.sub(_hide_element, text)
    return _hide_words(_hide_pairs(text))


def _hide_element(match: re.Match[str]) -> str:
    hidden = names_secret(match[1].rpartition(":")[2], match[3]) and match[3].strip()
    return f"<{match[1]}{match[2]}>{HIDDEN if hidden else match[3]}"


def _hide_pairs(text: str) -> str:
    """Hides the values of ``name=value`` and ``name: value``, quoted or not. An unquoted one ends where another begins,
    for a password may have any character in it."""
    parts: list[str] = []
    at = 0
    while match := _PAIR.search(text, at):
        quoted = _QUOTED.match(text, match.end())
        following = None if quoted else _NEXT_PAIR.search(text, match.end())
        end = quoted.end() if quoted else following.start() if following else len(text)
        if names_secret(match[1], text[match.end() : end]):
            parts += [text[at : match.end()], HIDDEN]
            at = end
        else:
            # The value may be an address, with parameters of its own.
            parts.append(text[at : match.end()])
            at = match.end()
    return "".join([*parts, text[at:]])


def _hide_words(text: str) -> str:
    """Hides what follows a word that is the name of a secret: ``auth-pass mymaster PW``."""
    at = 0
    while match := _WORD_PAIR.search(text, at):
        if names_secret(match[1], text[match.end() :]):
            return text[: match.end()] + HIDDEN
        at = match.end(1)
    return text
