"""Files that cannot be imported: one clear sentence, with the line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.migration.files import EVERYTHING
from tests.migration.imported import imported, settings_of

from headway.core.base import ConfigError
from headway.migration import import_files
from headway.migration.draft import Result

BOMB = """<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<broker brokerName="&b;"><transportConnector uri="tcp://x:1"/></broker>"""
OUTSIDE = '<!DOCTYPE b [\n<!ENTITY x SYSTEM "file:///etc/hostname">]>\n<broker brokerName="&x;"/>'
DEEP = "<broker>" * 200 + "</broker>" * 200
MANY = f"<broker>{'<a/>' * 200_001}</broker>"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.xml", "<broker>\n<policyEntry topic='a'>\n</broker>", ["a.xml:3: is not well-formed XML: mismatched"]),
        ("a.xml", "\n\n<broker>\n<policyEntry topic=a/></broker>", ["a.xml:4: is not well-formed XML"]),
        ("a.xml", BOMB, ["a.xml:1: declares the entity 'a'", "entities are not read"]),
        ("a.xml", OUTSIDE, ["a.xml:2: declares the entity 'x'"]),
        ("a.xml", '<!DOCTYPE b SYSTEM "x.dtd">\n<broker>&gone;</broker>', ["a.xml:2: has the entity 'gone'"]),
        ("a.xml", DEEP, ["a.xml:1: has more elements, or deeper ones"]),
        ("a.xml", MANY, ["a.xml:1: has more elements"]),
        ("a.xml", "<html><body>hello</body></html>", ["a.xml: has no settings of a known system (activemq, amps"]),
        ("a.xml", '<?xml version="1.0" encoding="x-none"?><broker/>', ["a.xml:1: is "]),
        ("a.conf", "max_queued_messages 1\n\xff", ["a.conf:2: is not text in UTF-8"]),
        ("a.conf", "hello world\n", ["a.conf: has no settings of a known system"]),
        ("a.conf", "# port 1883\n", ["a.conf: has no setting in it, only comments"]),
        ("a.conf", "", ["a.conf: is empty"]),
        ("a.conf", "port 1\n", ["a.conf: may be of", "--from says which"]),
        ("a.conf", "write_deadline: 5s\nmqtt {\n  port: 1883\n", ["a.conf:2: has a block that is not closed"]),
        ("a.conf", "write_deadline: 5s\n}\n", ["a.conf:2: has a } that closes nothing"]),
        ("a.conf", 'write_deadline: "5s\nmax_pending: 1\n', ["a.conf:1: has an unclosed quote"]),
        ("a.conf", "max_pending: 1\nwrite_deadline", ["a.conf:2: 'write_deadline' has no value"]),
        ("a.conf", f"max_pending: 1\nmqtt {'{ a ' * 200}", ["a.conf:2: has deeper blocks"]),
        ("a.json", '{"policies": [\n{"pattern" "x"}]}', ["a.json:2: is not JSON: expecting ':' delimiter"]),
        ("a.json", '{"users": [' + "9" * 5000 + "]}", ["a.json:1: has a number of too many digits"]),
        ("a.conf", "consumer_timeout = 1\nmax_message_size 5\n", ["a.conf:2: is not a setting: 'max_message_size 5'"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_with_its_line(tmp_path: Path, name: str, text: str, words: list[str]) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        import_files([tmp_path / name])
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert len(said) < 400
    for word in words:
        assert word in said


def test_files_that_are_too_large_or_away(tmp_path: Path) -> None:
    large = tmp_path / "large.conf"
    large.write_bytes(b"# " + b"x" * 8_000_000)
    for path, words in ((large, "is larger than 8 MB; is it a configuration?"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(ConfigError, match=words):
            import_files([path])


def test_files_of_two_systems_are_imported_one_by_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="import them one by one"):
        imported(tmp_path, ("redis.conf", "maxclients 5\n"), ("nats.conf", "max_pending: 5\n"))


def test_a_kind_that_is_not_known_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown kind of file 'redes' \\(did you mean redis\\?\\)"):
        imported(tmp_path, ("a.conf", "maxclients 5\n"), kind="redes")


@pytest.mark.parametrize(
    ("name", "text", "option", "why"),
    [
        ("a.xml", '<broker><memoryUsage limit="${mem}"/></broker>', "memoryUsage limit", "'${mem}' is not a size"),
        ("a.xml", '<broker><transportConnector uri="amqp://${host}:x"/></broker>', "transportConnector uri",
         "no address with a port"),
        ("a.xml", '<broker><transportConnector uri="http://0.0.0.0:80"/></broker>', "transportConnector uri",
         "http is not spoken here"),
        ("a.xml", '<broker><policyEntry queue="a.>.b" memoryLimit="1mb"/></broker>', "policyEntry queue",
         "at the end only"),
        ("a.xml", '<broker><policyEntry queue="a.>, b*, c" memoryLimit="1mb"/></broker>', "policyEntry queue",
         "'b*': a wildcard stands for a whole level, not for a part of one; the other destinations in it are carried"),
        ("a.xml", '<broker><abortSlowConsumerStrategy checkPeriod="-5"/></broker>',
         "abortSlowConsumerStrategy checkPeriod", "'-5' is no time between two looks"),
        ("a.xml", '<broker><policyEntry topic="a*"/></broker>', "policyEntry topic", "not for a part of one"),
        ("a.xml", '<broker><abortSlowConsumerStrategy maxSlowCount="2000"/></broker>',
         "abortSlowConsumerStrategy maxSlowCount", "at most 1000"),
        ("a.xml", '<broker><memoryUsage limit="900gb"/></broker>', "memoryUsage limit", "the line is a comment"),
        ("a.xml", "<AMPSConfig><SOW><Topic><Name>^a</Name><Key>/a</Key></Topic></SOW></AMPSConfig>", "Name",
         "is a regular expression"),
        ("a.xml", "<topic key='a.#.b'><consumer><depth>5</depth></consumer></topic>", "depth", "at the end only"),
        ("a.conf", "maxclients ten\nclient-output-buffer-limit pubsub 1 2 3\n", "maxclients", "not a whole number"),
        ("a.conf", "max_pending: 1\nmqtt { port: 99999 }\n", "mqtt.port", "not an address that can be listened on"),
        ("a.conf", "max_pending: 1\nwebsocket { port: 80, allowed_origins: [a b] }\n", "websocket.allowed_origins",
         "is not the origin of a page"),
        ("a.json", '{"policies": [{"name": "a", "pattern": "^a.*b", "definition": {"max-length": 5}}]}',
         "policies.pattern", "is a regular expression"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_carried_over_is_said_with_the_reason(
    tmp_path: Path, name: str, text: str, option: str, why: str
) -> None:
    found = imported(tmp_path, (name, text))
    settings_of(found)
    assert any(one.option == option and why in one.why for one in found.lost), found.lost


def test_no_secret_is_repeated(tmp_path: Path) -> None:
    text = "requirepass s3cret\nuser bob on >s3cret ~* +@all\nmaxclients 5\ntls-key-file-pass s3cret\n"
    found = imported(tmp_path, ("redis.conf", text))
    assert "s3cret" not in found.text
    assert "s3cret" not in "".join(map(str, found.outcomes))
    assert len(found.lost) == 3


NONE_THERE = ("maxSlowDuration", "maxSlowCount", "priority", "journalDiskSyncInterval")
"""Settings that are less than 0 where there is none, or by their meaning, or that nobody looks at."""


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_number_less_than_0_is_never_carried_over_and_never_spoils_the_rest(tmp_path: Path, name: str) -> None:
    files = EVERYTHING[name]
    for at, (path, text) in enumerate(files):
        for match in re.finditer(r'(?<=[>"\s=:])\d[\d.]*[a-zA-Z%]{0,3}(?=["<\s,}]|$)', text):
            changed = text[: match.start()] + "-5" + text[match.end() :]
            found = imported(tmp_path, *files[:at], (path, changed), *files[at + 1 :])
            carried = [one.option for one in found.outcomes if one.value == "-5" and one.result is Result.CARRIED]
            assert [one for one in carried if not one.endswith(NONE_THERE)] == [], found.text
