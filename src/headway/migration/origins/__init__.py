"""One file per origin: what its settings are here."""

from headway.migration.origins.activemq import ACTIVEMQ
from headway.migration.origins.amps import AMPS
from headway.migration.origins.mosquitto import MOSQUITTO
from headway.migration.origins.nats import NATS
from headway.migration.origins.origin import Origin, Score
from headway.migration.origins.qpid import QPID
from headway.migration.origins.qpidd import QPIDD
from headway.migration.origins.rabbitmq import RABBITMQ
from headway.migration.origins.redis import REDIS
from headway.migration.origins.xap import XAP

ORIGINS: tuple[Origin, ...] = (ACTIVEMQ, AMPS, QPID, QPIDD, XAP, RABBITMQ, REDIS, NATS, MOSQUITTO)

__all__ = ["Origin", "ORIGINS", "Score"]
