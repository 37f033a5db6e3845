"""ActiveMQ (Classic)."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.peers.peer import FOLDERS, Instance, Peer
from bench.wires.openwire import Openwire, OpenwireEach, OpenwireQueue
from bench.wires.stomp import Stomp, StompQueue
from bench.wires.wire import NamedQueueWire, Wire

HOME = Path("/usr/share/activemq")
JAVA = ("-Xms512M", "-Xmx512M", "-Djava.net.preferIPv4Stack=true", "-XX:-UsePerfData")


class Activemq(Peer):
    name, title, program = "activemq", "ActiveMQ", "activemq"
    install = "apt-get install -y activemq default-jre-headless"
    wire: Wire = Openwire()
    queue_wire: NamedQueueWire | None = OpenwireQueue()
    warm_up_s = 6.0
    config_name = "activemq.xml"
    config = """
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false" persistent="false"
      advisorySupport="false" dataDirectory="{folder}/data">
    <transportConnectors>
      <transportConnector uri="tcp://127.0.0.1:{port}?maximumConnections=20000"/>
    </transportConnectors>
  </broker>
</beans>
"""
    why = (
        "-Xms512M -Xmx512M: Debian's own options for it. The memory limits are the defaults, a share of that heap.",
        "persistent=false, useJmx=false, advisorySupport=false: advised by its own page on performance.",
        "OpenWire, its own protocol, faster than STOMP (1.3 times to 50 subscribers, twice to one). Over tcp as in "
        "Debian's file; for the footprint over nio, as advised for many connections.",
        "It is warmed up for 6 s before each measurement, the others for half a second: Java compiles what is hot.",
    )

    def find(self) -> str | None:
        java = shutil.which("java") or shutil.which("java", path=FOLDERS)
        return java if (HOME / "bin" / "activemq.jar").exists() else None

    def version(self) -> str:
        jar = next(Path("/usr/share/java").glob("activemq-broker-*.jar"), None)
        return jar.stem.rpartition("-")[2] if jar else "unknown"

    def tuned(self, workload: str) -> Peer:
        if workload != "footprint":
            return self
        many = type(self)()
        many.config = self.config.replace('uri="tcp://', 'uri="nio://')
        return many

    def command(self, instance: Instance) -> list[str]:
        folder = instance.folder
        return [
            self.find() or "java", *JAVA, f"-Dactivemq.home={HOME}", f"-Dactivemq.base={folder}",
            f"-Dactivemq.conf={folder}", f"-Dactivemq.data={folder}/data", "-jar", str(HOME / "bin" / "activemq.jar"),
            "start", f"xbean:file:{folder / self.config_name}",
        ]  # fmt: skip


class ActivemqCached(Activemq):
    name, title = "activemq-cached", "ActiveMQ (cached)"
    wire: Wire = Openwire(cached=True)
    only_named = True


class ActivemqJms(Activemq):
    name, title = "activemq-jms", "ActiveMQ (as JMS, AUTO_ACKNOWLEDGE)"
    wire: Wire = OpenwireEach(cached=True)
    queue_wire = None
    only_named = True


class ActivemqStomp(Activemq):
    name, title = "activemq-stomp", "ActiveMQ (STOMP)"
    wire: Wire = Stomp()
    queue_wire = StompQueue()
    only_named = True
    config = Activemq.config.replace("tcp://", "stomp://")
