"""Any file is imported, or refused in one sentence; and what comes out is a config that the broker takes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.migration.files import EVERYTHING

from headway.core.base import ConfigError
from headway.migration import ORIGINS, import_files
from headway.server.config import parse_settings

TEXTS = [text for files in EVERYTHING.values() for _, text in files]
PIECES = st.sampled_from([
    "", "0", "-1", "1e9", "99999999999999999999", "true", '"', "'", "<", ">", "&", "{", "}", "[", "]", "=", ":", "\n",
    " ", "$x", "\0", "é", "#", "/", "+", ".", "*", "%", "10%", "infinity", "\\", "]]", "'''", '"""',
])  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A real file with some places replaced."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(PIECES) + text[end:]
    return text


def check(raw: bytes, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any"
        path.write_bytes(raw)
        refused, text = "", ""
        try:
            text = import_files([path], kind).text
        except ConfigError as error:
            refused = str(error)
    if refused:
        assert "what was made of" not in refused
        assert len(refused.splitlines()) == 1
    else:
        parse_settings(text)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(text=damaged())
def test_damaged_files(text: str) -> None:
    check(text.encode(errors="surrogatepass"), "")


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(raw=st.binary(max_size=200), origin=st.sampled_from(ORIGINS))
def test_any_bytes_as_any_kind(raw: bytes, origin: object) -> None:
    check(raw, getattr(origin, "name", ""))
