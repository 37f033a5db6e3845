"""ActiveMQ's JMS client, in one JVM that takes commands by lines (jms/JmsClient.java)."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parent / "jms" / "JmsClient.java"
JARS = [
    "activemq-client", "geronimo-jms_1.1_spec", "geronimo-j2ee-management-1.1-spec", "slf4j-api", "slf4j-nop",
    "hawtbuf",
]  # fmt: skip
CLASSPATH = ":".join(f"/usr/share/java/{jar}.jar" for jar in JARS)
TRANSACTED, AUTO, CLIENT, DUPS_OK, INDIVIDUAL = 0, 1, 2, 3, 4
NON_PERSISTENT, PERSISTENT = 1, 2

needs_jms = pytest.mark.skipif(
    shutil.which("javac") is None or not Path(CLASSPATH.split(":", 1)[0]).exists(),
    reason="there is no libactivemq-java",
)


class JmsError(Exception):
    """An exception of the client: ``kind`` is its Java class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


class JmsMessage(NamedTuple):
    id: str
    kind: str
    body: str | None
    destination: str
    priority: int
    mode: int
    timestamp: int
    expiration: int
    redelivered: bool
    deliveries: int
    correlation: str | None
    type: str | None
    reply_to: str | None
    properties: dict[str, str]
    """Each as its Java type and value, with a colon between."""


def _classes() -> Path:
    """The folder of the compiled client. It stays in the virtual environment: the compiler takes longer than a JVM."""
    javac = os.path.realpath(shutil.which("javac") or "")
    key = hashlib.sha256(SOURCE.read_bytes() + f"{javac} {CLASSPATH}".encode()).hexdigest()[:16]
    folder = Path(sys.prefix) / f".headway-jms-{key}"
    with Path(sys.prefix, ".headway-jms.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = tempfile.mkdtemp(prefix=".headway-jms-", dir=sys.prefix)
            command = ["javac", "-nowarn", "-cp", CLASSPATH, "-d", part, str(SOURCE)]
            subprocess.run(command, check=True, capture_output=True)
            Path(part).rename(folder)
    return folder


class Jms:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{_classes()}:{CLASSPATH}",
             "JmsClient"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._names = 0

    def do(self, command: str, *said: object) -> str:
        """Carries out a command. Raises :class:`JmsError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = ["-" if word is None else base64.b64encode(str(word).encode()).decode() for word in said]
        self._process.stdin.write(" ".join([command, *words]) + "\n")
        self._process.stdin.flush()
        answer, _, text = self._process.stdout.readline().strip().partition(" ")
        found = base64.b64decode(text).decode()
        if answer == "fault":
            raise JmsError(*found.split("\n", 1))
        assert answer == "ok"
        return found

    def _fresh(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def connect(
        self, url: str, *, user: str | None = None, password: str | None = None, client_id: str | None = None
    ) -> str:
        name = self._fresh("connection")
        self.do("connect", name, url, user, password, client_id)
        return name

    def session(self, connection: str, mode: int = AUTO) -> str:
        name = self._fresh("session")
        self.do("session", connection, name, mode)
        return name

    def producer(self, session: str, destination: str | None = None) -> str:
        name = self._fresh("producer")
        self.do("producer", session, name, destination)
        return name

    def consumer(
        self, session: str, destination: str, selector: str | None = None, *, no_local: bool = False
    ) -> str:
        name = self._fresh("consumer")
        self.do("consumer", session, name, destination, selector, "yes" if no_local else None)
        return name

    def durable(
        self, session: str, topic: str, subscription: str, selector: str | None = None, *, no_local: bool = False
    ) -> str:
        name = self._fresh("durable")
        self.do("durable", session, name, topic, subscription, selector, "yes" if no_local else None)
        return name

    def temporary(self, session: str, kind: str = "queue") -> tuple[str, str]:
        """Returns the name here, and the address."""
        name = self._fresh("temporary")
        return name, self.do("temporary", session, name, kind)

    def send(
        self, producer: str, session: str, body: str | None, destination: str | None = None, *, kind: str = "text",
        properties: dict[str, str] | None = None, mode: int = PERSISTENT, priority: int = 4, lifetime_ms: int = 0,
        correlation: str | None = None, type: str | None = None, reply_to: str | None = None,
    ) -> str:  # fmt: skip
        """Sends a message, and returns its id. Properties are of the form ``int:5``."""
        lines = "\n".join(f"{name}={value}" for name, value in properties.items()) if properties else None
        return self.do(
            "send", producer, session, destination, kind, body, lines, mode, priority, lifetime_ms, correlation, type,
            reply_to,
        )  # fmt: skip

    def receive(self, consumer: str, wait_ms: int = 5000) -> JmsMessage | None:
        return _message(self.do("receive", consumer, wait_ms))

    def got(self, consumer: str) -> JmsMessage:
        message = self.receive(consumer)
        assert message is not None
        return message

    def heard(self, consumer: str, wait_ms: int = 5000) -> JmsMessage | None:
        return _message(self.do("heard", consumer, wait_ms))

    def drain(self, consumer: str, count: int, *, acknowledge: bool = False) -> list[str]:
        """Receives texts until there are so many, or none comes for five seconds."""
        return self.do("drain", consumer, count, "yes" if acknowledge else None).split("\n")

    def faults(self, connection: str) -> list[str]:
        text = self.do("faults", connection)
        return text.split("\n") if text else []


@cache
def java() -> Jms:
    """The JVM of this process. It ends with it, as its input does."""
    return Jms()


def _message(text: str) -> JmsMessage | None:
    if not text:
        return None
    found: dict[str, str] = {}
    properties: dict[str, str] = {}
    for line in text.split("\n"):
        name, _, encoded = line.partition(" ")
        value = base64.b64decode(encoded).decode()
        if name == "property":
            key, _, told = value.partition("=")
            properties[key] = told
        else:
            found[name] = value
    return JmsMessage(
        found.get("id", ""), found["kind"], found.get("body"), found["destination"], int(found["priority"]),
        int(found["mode"]), int(found["timestamp"]), int(found["expiration"]), found["redelivered"] == "true",
        int(found.get("deliveries", 0)), found.get("correlation"), found.get("type"), found.get("reply_to"), properties,
    )  # fmt: skip
