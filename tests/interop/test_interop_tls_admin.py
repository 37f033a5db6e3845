"""The admin API over HTTPS."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
from tests.interop.command import headway
from tests.interop.tls_house import House
from tests.interop.waiting import PATIENCE_S

from headway.client.address import read_admin_url
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import SourceError

pytest_plugins = ("tests.interop.tls_fixtures",)



def test_top_and_why_over_https(house: House, name: str) -> None:
    url = house.broker.admin.replace("127.0.0.1", "localhost")
    with house.raw(name) as raw:
        raw.subscribed(f"{name}/#")
        done = headway("top", "--json", "--admin", url, "--ca", str(house.ca))
        assert name in {row["client"] for row in json.loads(done.stdout)["consumers"]}, done.stderr
    assert headway("top", "--once", "--admin", f"{url}?ca={house.ca}").returncode == 0
    assert headway("top", "--once", "--admin", url, HEADWAY_CA=str(house.ca)).returncode == 0
    refused = headway("top", "--once", "--admin", url)
    assert refused.returncode == 2
    assert "is not trusted: " in refused.stderr
    assert "--ca FILE" in refused.stderr
    missing = headway("top", "--once", "--admin", url, "--ca", "/nowhere.pem")
    assert (missing.returncode, "/nowhere.pem cannot be read" in missing.stderr) == (2, True)


def test_the_source_of_spark_over_https(house: House) -> None:
    url = read_admin_url(f"{house.broker.admin.replace('127.0.0.1', 'localhost')}?ca={house.ca}", {})
    with pytest.raises(SourceError, match=r"record|journal"):
        BrokerClient(url, 5.0).offsets("nothing/#")
    with pytest.raises(SourceError, match="is not trusted"):
        BrokerClient(url.partition("?")[0], 5.0).offsets("nothing/#")


def test_a_wrong_host_name(house: House) -> None:
    url = house.broker.admin.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(url + "/v1/broker", timeout=5, context=house.context())


def test_the_console_over_https(house: House) -> None:
    url = house.broker.admin.replace("127.0.0.1", "localhost")
    with urllib.request.urlopen(f"{url}/", timeout=PATIENCE_S, context=house.context()) as answer:
        assert b"console.js" in answer.read()
    feed = urllib.request.Request(f"{url}/v1/console/events", headers={"Origin": url, "Sec-Fetch-Site": "same-origin"})
    with urllib.request.urlopen(feed, timeout=PATIENCE_S, context=house.context()) as answer:
        assert answer.readline() == b"event: frame\n"
        assert json.loads(answer.readline().removeprefix(b"data: "))["consoles"] >= 1
    other = urllib.request.Request(f"{url}/v1/broker", headers={"Origin": "https://localhost:1"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(other, timeout=PATIENCE_S, context=house.context())
    assert refused.value.code == 403


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(house: House) -> None:
    url = house.broker.admin.replace("127.0.0.1", "localhost") + "/metrics"
    done = subprocess.run(["curl", "-s", "-v", "--cacert", str(house.ca), url], capture_output=True, text=True)
    assert "headway_" in done.stdout
    assert "http/1.1" in done.stderr
    for bad in (["--tls-max", "1.1", "-k"], []):
        assert subprocess.run(["curl", "-s", *bad, url], capture_output=True).returncode != 0


def test_many_at_once_and_large_answers(house: House) -> None:
    """The transport under aiohttp: keep-alive, bodies in parts."""
    port = int(house.broker.admin.rpartition(":")[2])
    ones = [http.client.HTTPSConnection("localhost", port, context=house.context(), timeout=60) for _ in range(20)]
    for _ in range(3):
        for one in ones:
            one.request("GET", "/metrics")
        assert all(b"headway_" in one.getresponse().read() for one in ones)
    body = json.dumps({"x": "y" * 200_000})
    ones[0].request("POST", "/v1/preview", body)
    answer = ones[0].getresponse()
    assert (answer.status, bool(answer.read())) == (400, True)
    for one in ones:
        one.close()


def test_plain_http_on_the_https_port(house: House) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError, OSError)):
        urllib.request.urlopen(house.broker.admin.replace("https", "http") + "/v1/broker", timeout=PATIENCE_S)
    assert "(admin, " in house.says("it has to use https://")
