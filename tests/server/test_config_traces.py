"""``[traces]`` in the config: off by default, its values, and mistakes in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.server.configs import mistakes

from headway.server.config import TracesTable, describe, make_broker, parse_settings
from headway.server.config.reading import default_text

KEYS = ("enabled", "endpoint", "headers", "service", "ratio", "per_second", "wait", "timeout", "waiting_max")


def test_traces_are_off_until_their_table_is_there_and_one_key_turns_them_off() -> None:
    assert not parse_settings("").traces.enabled
    assert make_broker(parse_settings("")).traces is None
    on = parse_settings('[traces]\nratio = "10%"\n')
    assert on.traces.enabled
    assert "10 % of sampled traces, 100 records a second" in describe(on)
    assert make_broker(on).traces is not None
    off = parse_settings("[traces]\nenabled = false\n")
    assert "traces" not in describe(off)
    assert make_broker(off).traces is None


def test_what_is_said_of_traces_in_the_default_file_is_what_it_does() -> None:
    (block,) = re.findall(r"^# (\[traces\].*\n(?:# .*\n)+)", default_text(), re.MULTILINE)
    for key in KEYS:
        assert f"# {key} = " in block, key
    assert parse_settings(block.replace("\n# ", "\n")).traces == TracesTable(service="headway")


@pytest.mark.parametrize(("endpoint", "url"), [
    ("http://collector:4318", "http://collector:4318/v1/traces"),
    ("https://collector:4318/", "https://collector:4318/v1/traces"),
    ("http://collector/otlp/v1/traces", "http://collector/otlp/v1/traces"),
])
def test_the_address_has_the_path_of_the_protocol_unless_another_is_given(endpoint: str, url: str) -> None:
    assert parse_settings(f'[traces]\nendpoint = "{endpoint}"\n').traces.url == url


def test_what_is_sent_along_is_not_shown() -> None:
    settings = parse_settings('[traces]\nheaders = { authorization = "Bearer s3cret" }\n')
    assert settings.traces.headers == {"authorization": "Bearer s3cret"}
    assert "s3cret" not in describe(settings)
    assert "s3cret" not in mistakes('[traces]\nheaders = { authorization = "s3cret\\n" }\nratio = 2\n')[0]


@pytest.mark.parametrize(("text", "line"), [
    ("endpoint = 'collector:4317'", 'traces.endpoint: "collector:4317" is not a URL such as "http://127.0.0.1:4318"'),
    ("endpoint = 'grpc://collector:4317'", 'traces.endpoint: "grpc://collector:4317" is not a URL such as "http://'),
    ("ratio = 0", "traces.ratio: 0 is too little: more than 0 %"),
    ("ratio = 1.5", "traces.ratio: "),
    ("per_second = 0", "traces.per_second: 0 is too little: from 1 to 1,000"),
    ("wait = '2h'", 'traces.wait: "2h" is too much: from 1 s to 1 h'),
    ("timeout = '1ms'", 'traces.timeout: "1ms" is too little: from 100 ms'),
    ("waiting_max = 0", "traces.waiting_max: 0 is too little: from 1 to 100,000"),
    ("headers = { 'a b' = 'c' }", 'traces.headers."a b": "a b" is not the name of a header, such as authorization'),
    ("headers = { a = 'ü' }", "traces.headers.a: the value of a header has printable ASCII characters only"),
    ("headers = { a = 1 }", "traces.headers.a: expected text, not 1"),
    ("sample = 1", "traces.sample: unknown key (known: enabled, endpoint, headers, service, ratio, per_second, wait"),
])
def test_mistakes(text: str, line: str) -> None:
    (said,) = mistakes(f"[traces]\n{text}\n")
    assert said.startswith(line), said


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_without_the_packages_it_says_what_installs_them(tmp_path: Path) -> None:
    """Of OpenTelemetry the API alone may be there, which others bring."""
    config = tmp_path / "headway.toml"
    listener = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
    config.write_text(f"[server]\nadmin = false\n{listener}[pool]\ndisk = 0\n[traces]\n")
    ran = run("import sys; sys.modules['opentelemetry.sdk'] = sys.modules['opentelemetry.exporter'] = None\n"
              f"sys.argv = ['', 'serve', '-c', {str(config)!r}]\nfrom headway.cli import main\nmain()")  # fmt: skip
    assert ran.returncode == 2, ran.stderr
    (line,) = [line for line in ran.stderr.splitlines() if "has no disk" not in line]
    assert line == (
        "headway: traces need OpenTelemetry's packages: pip install 'headway[otel]' (or traces.enabled = false)"
    )


def test_a_broker_without_traces_does_not_import_them() -> None:
    ran = run(
        "import asyncio, sys\nfrom headway.embed import Broker\n"
        "async def main():\n  async with Broker() as b:\n    await b.publish('t', 'x')\n"
        "    assert b.running.engine.traces is None\n"
        "asyncio.run(main())\nprint([name for name in sys.modules if name.startswith('opentelemetry')])"
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("[]\n", "")
