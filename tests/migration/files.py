"""Files of other systems that set every option with a counterpart, written for these tests."""

from __future__ import annotations

ACTIVEMQ = """<beans xmlns="http://www.springframework.org/schema/beans">
<broker xmlns="http://activemq.apache.org/schema/core" brokerName="b1" persistent="true">
 <destinationPolicy><policyMap><policyEntries>
  <policyEntry topic="a.>" producerFlowControl="true" memoryLimit="1mb" cursorMemoryHighWaterMark="60"
    advisoryForSlowConsumers="true" advisoryForFastProducers="true" advisoryForDiscardingMessages="true"
    advisoryWhenFull="true" strictOrderDispatch="true">
   <dispatchPolicy><strictOrderDispatchPolicy/></dispatchPolicy>
   <pendingSubscriberPolicy><vmCursor/></pendingSubscriberPolicy>
   <pendingDurableSubscriberPolicy><vmDurableCursor/></pendingDurableSubscriberPolicy>
   <subscriptionRecoveryPolicy><timedSubscriptionRecoveryPolicy recoverDuration="60000"/></subscriptionRecoveryPolicy>
   <pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="50"/></pendingMessageLimitStrategy>
   <messageEvictionStrategy><oldestMessageEvictionStrategy/></messageEvictionStrategy>
   <slowConsumerStrategy>
    <abortSlowConsumerStrategy maxSlowDuration="20000" maxSlowCount="30" checkPeriod="1000" abortConnection="true"/>
   </slowConsumerStrategy>
  </policyEntry>
  <policyEntry topic="b.*">
   <dispatchPolicy><roundRobinDispatchPolicy/></dispatchPolicy>
   <pendingSubscriberPolicy><fileCursor/></pendingSubscriberPolicy>
   <pendingDurableSubscriberPolicy><fileDurableSubscriberCursor/></pendingDurableSubscriberPolicy>
   <subscriptionRecoveryPolicy><fixedSizedSubscriptionRecoveryPolicy maximumSize="1mb"/></subscriptionRecoveryPolicy>
   <pendingMessageLimitStrategy><prefetchRatePendingMessageLimitStrategy multiplier="2"/></pendingMessageLimitStrategy>
   <messageEvictionStrategy><oldestMessageWithLowestPriorityEvictionStrategy/></messageEvictionStrategy>
   <slowConsumerStrategy>
    <abortSlowAckConsumerStrategy maxTimeSinceLastAck="10000" maxSlowDuration="40000" maxSlowCount="5" checkPeriod="9"
      ignoreIdleConsumers="true" abortConnection="false"/>
   </slowConsumerStrategy>
  </policyEntry>
  <policyEntry topic="c">
   <dispatchPolicy><simpleDispatchPolicy/></dispatchPolicy>
   <pendingDurableSubscriberPolicy><storeDurableSubscriberCursor/></pendingDurableSubscriberPolicy>
   <subscriptionRecoveryPolicy><lastImageSubscriptionRecoveryPolicy/></subscriptionRecoveryPolicy>
   <pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="10"/></pendingMessageLimitStrategy>
   <messageEvictionStrategy><uniquePropertyMessageEvictionStrategy propertyName="symbol"/></messageEvictionStrategy>
  </policyEntry>
  <policyEntry topic="d">
   <subscriptionRecoveryPolicy><noSubscriptionRecoveryPolicy/></subscriptionRecoveryPolicy>
   <slowConsumerStrategy><abortSlowConsumerStrategy/></slowConsumerStrategy>
  </policyEntry>
  <policyEntry topic="e">
   <subscriptionRecoveryPolicy><retainedMessageSubscriptionRecoveryPolicy/></subscriptionRecoveryPolicy>
   <slowConsumerStrategy><abortSlowAckConsumerStrategy/></slowConsumerStrategy>
  </policyEntry>
  <policyEntry queue="orders" producerFlowControl="false" memoryLimit="2mb">
   <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>
  </policyEntry>
  <policyEntry queue=">" producerFlowControl="false">
   <pendingQueuePolicy><fileQueueCursor/></pendingQueuePolicy></policyEntry>
  <policyEntry queue="x"><pendingQueuePolicy><storeCursor/></pendingQueuePolicy></policyEntry>
 </policyEntries></policyMap></destinationPolicy>
 <persistenceAdapter>
  <kahaDB directory="data/kahadb" journalMaxFileLength="32mb" enableJournalDiskSyncs="true"
    journalDiskSyncStrategy="periodic" journalDiskSyncInterval="5"/>
  <levelDB directory="l"/><amqPersistenceAdapter directory="m"/><mKahaDB directory="n"/><memoryPersistenceAdapter/>
 </persistenceAdapter>
 <systemUsage><systemUsage>
  <memoryUsage><memoryUsage limit="64 mb"/></memoryUsage> <tempUsage><tempUsage limit="1 gb"/></tempUsage>
 </systemUsage></systemUsage>
 <transportConnectors>
  <transportConnector name="mqtt"
    uri="mqtt+nio://127.0.0.1:1883?maximumConnections=1000&amp;wireFormat.maxFrameSize=104857&amp;transport.soWriteTimeout=15000"/>
  <transportConnector name="all" uri="auto+nio://127.0.0.1:61616?auto.protocols=default&amp;wireFormat.maxInactivityDuration=60000&amp;soWriteTimeout=15000"/>
  <transportConnector name="secure" uri="mqtt+nio+ssl://0.0.0.0:8883?needClientAuth=true"/>
  <transportConnector name="secure2" uri="mqtt+ssl://0.0.0.0:8884?transport.wantClientAuth=true"/>
  <transportConnector name="secure3" uri="mqtt+ssl://0.0.0.0:8885?transport.needClientAuth=true"/>
  <transportConnector name="secure4" uri="mqtt+ssl://0.0.0.0:8886?wantClientAuth=true"/>
 </transportConnectors>
</broker></beans>
"""

AMPS = """<AMPSConfig>
 <Name>AMPS</Name>
 <MessageMemoryLimit>200MB</MessageMemoryLimit> <MessageDiskLimit>2GB</MessageDiskLimit>
 <MessageDiskPath>/var/tmp</MessageDiskPath> <ClientMessageAgeLimit>30s</ClientMessageAgeLimit>
 <ClientMaxCapacity>40%</ClientMaxCapacity>
 <Admin><InetAddr>localhost:8085</InetAddr></Admin>
 <Transports>
  <Transport> <Name>desk</Name> <Type>tcp</Type> <InetAddr>127.0.0.1:9007</InetAddr> <Protocol>amps</Protocol>
   <MessageMemoryLimit>100MB</MessageMemoryLimit> <ClientMessageAgeLimit>1h</ClientMessageAgeLimit>
   <ClientOffline>enabled</ClientOffline> <ClientOfflineThreshold>1000</ClientOfflineThreshold>
   <ClientOfflineDirectory>/var/tmp/offline</ClientOfflineDirectory>
   <SlowClientDisconnect>true</SlowClientDisconnect> <ClientBufferThreshold>4MB</ClientBufferThreshold> </Transport>
  <Transport> <Name>web</Name> <Type>tcp</Type> <InetAddr>9008</InetAddr> <Protocol>websocket</Protocol>
   <PerMessageDeflate>enabled</PerMessageDeflate> </Transport>
  <Transport> <Name>tls</Name> <Type>tcps</Type> <InetAddr>9009</InetAddr> <Protocol>amps</Protocol>
   <Certificate>none/c.pem</Certificate> <PrivateKey>none/k.pem</PrivateKey> <CAFile>none/ca.pem</CAFile>
   <VerifyClient>true</VerifyClient> </Transport>
 </Transports>
 <SOW>
  <Topic> <Name>PRICING</Name> <Key>/tickerId</Key> <Expiration>30s</Expiration> </Topic>
  <TopicDefinition> <Topic>ORDERS</Topic> <Key>/id</Key> </TopicDefinition>
  <ConflatedTopic> <Name>PRICING-3S</Name> <UnderlyingTopic>PRICING</UnderlyingTopic> <Interval>3s</Interval>
  </ConflatedTopic>
 </SOW>
 <TransactionLog><JournalDirectory>/fast/journal</JournalDirectory></TransactionLog>
</AMPSConfig>
"""

QPID = """<broker>
 <connector><port>5672</port><bind>127.0.0.1</bind><socketSendBuffer>32768</socketSendBuffer></connector>
 <virtualhosts><virtualhost><name>test</name><test>
  <housekeeping><checkPeriod>5000</checkPeriod></housekeeping>
  <slow-consumer-detection><delay>1</delay><timeunit>MINUTES</timeunit></slow-consumer-detection>
  <queues>
   <slow-consumer-detection><depth>4235264</depth><messageAge>600000</messageAge>
    <policy><name>TopicDelete</name><topicDelete><delete-persistent/></topicDelete></policy></slow-consumer-detection>
   <maximumMessageCount>5000</maximumMessageCount>
   <queue><name>ping</name><ping><maximumQueueDepth>4235264</maximumQueueDepth>
    <maximumMessageAge>600000</maximumMessageAge><capacity>1000000</capacity>
    <flowResumeCapacity>800000</flowResumeCapacity></ping></queue>
  </queues>
  <topics>
   <slow-consumer><messageCount>500</messageCount></slow-consumer>
   <topic><name>orders</name><subscriptionName>desk:orders</subscriptionName>
    <slow-consumer><messageCount>70</messageCount></slow-consumer></topic>
   <topic><name>stocks.eu.*</name><slow-consumer><messageCount>60</messageCount></slow-consumer></topic>
   <topic key="stocks.us.*"><consumer><maessageAge>600000</maessageAge>
    <policy name="Delete"><options><option name="delete-persistent" value="true"/></options></policy>
   </consumer></topic>
  </topics>
 </test></virtualhost></virtualhosts>
</broker>
"""

QPIDD = """port=5672
interface=127.0.0.1
max-connections=500
max-negotiate-time=2000
auth=no
data-dir=/var/lib/qpidd
store-dir=/var/lib/qpidd
no-data-dir=no
tcp-nodelay=yes
default-queue-limit=1000000
default-flow-stop-threshold=80
default-flow-resume-threshold=70
default-event-threshold-ratio=60
"""

XAP = """com.gs.transport_protocol.lrmi.slow-consumer.enabled=true
com.gs.transport_protocol.lrmi.slow-consumer.throughput=5000
com.gs.transport_protocol.lrmi.slow-consumer.latency=500
com.gs.transport_protocol.lrmi.slow-consumer.retries=3
"""

RABBITMQ = """listeners.tcp.default = 5672
listeners.ssl.default = 5671
listeners.tcp = none
listeners.ssl = none
ssl_options.certfile = none/c.pem
ssl_options.keyfile = none/k.pem
ssl_options.cacertfile = none/ca.pem
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
mqtt.listeners.tcp.default = 1883
mqtt.allow_anonymous = true
mqtt.prefetch = 10
mqtt.max_session_expiry_interval_seconds = 86400
web_mqtt.tcp.port = 15675
web_mqtt.tcp.ip = 127.0.0.1
vm_memory_high_watermark.absolute = 1GB
consumer_timeout = 900000
max_message_size = 134217728
connection_max = 1000
handshake_timeout = 10000
proxy_protocol = false
management.tcp.port = 15672
"""

DEFINITIONS = """{"policies": [
 {"vhost": "/", "name": "bounded", "pattern": "^orders$", "apply-to": "queues", "priority": 1, "definition":
  {"max-length": 1000, "max-length-bytes": 1000000, "overflow": "reject-publish", "queue-mode": "lazy"}},
 {"vhost": "/", "name": "all", "pattern": ".*", "apply-to": "all", "priority": 0, "definition":
  {"max-length": 100000, "consumer-timeout": 3600000}}
]}
"""

REDIS = """client-output-buffer-limit pubsub 32mb 8mb 60
maxclients 5000
maxmemory-clients 256mb
"""

NATS = """server_name: "n1"
max_pending: 32MB
write_deadline = "5s"
max_payload 1MB
max_connections: 1000
max_conn: 1000
max_subscriptions: 500
max_subs: 500
http: "127.0.0.1:8222"
http_port: 8222
monitor_port: 8222
no_fast_producer_stall: true
jetstream { store_dir: "/data", storedir: "/data" }
store_dir: "/data"
mqtt { port: 1883, host: "127.0.0.1", max_ack_pending: 100
  tls { cert_file: "none/c.pem", key_file: "none/k.pem", ca_file: "none/ca.pem", verify: true } }
mqtt { listen: "127.0.0.1:1884" }
websocket { port: 8080, host: "127.0.0.1", no_tls: true, allowed_origins: ["https://a.example.com"], compression: true,
  same_origin: true }
websocket { listen: "127.0.0.1:8081", tls { cert_file: "none/c.pem" } }
"""

MOSQUITTO = """max_queued_messages 200
max_queued_bytes 1000000
max_inflight_messages 20
max_packet_size 1000000
message_size_limit 1000000
max_keepalive 600
persistent_client_expiration 14d
persistence true
persistence_location /var/lib/mosquitto/
persistence_file m.db
autosave_interval 1800
autosave_on_changes false
memory_limit 100000000
global_max_clients 900
queue_qos0_messages false
set_tcp_nodelay true
retain_available true
allow_duplicate_messages true
bind_address 127.0.0.1
port 1883
listener 8080 127.0.0.1
protocol websockets
max_connections 100
listener_allow_anonymous true
websockets_origin https://a.example.com
socket_domain ipv4
listener 8883
certfile none/c.pem
keyfile none/k.pem
cafile none/ca.pem
require_certificate true
use_identity_as_username true
allow_anonymous true
"""

EVERYTHING = {
    "activemq": [("activemq.xml", ACTIVEMQ)],
    "amps": [("amps.xml", AMPS)],
    "qpid": [("config.xml", QPID)],
    "qpidd": [("qpidd.conf", QPIDD)],
    "xap": [("gs.properties", XAP)],
    "rabbitmq": [("rabbitmq.conf", RABBITMQ), ("definitions.json", DEFINITIONS)],
    "redis": [("redis.conf", REDIS)],
    "nats": [("nats.conf", NATS)],
    "mosquitto": [("mosquitto.conf", MOSQUITTO)],
}
"""Files by origin, which are imported together."""
