"""Who may come in: never more than the other system certainly let in. And files that are of no system that is known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.migration.imported import imported, settings_of

from headway.core.base import ConfigError
from headway.server.config import Settings, bad_certificates, parse_settings

OPEN, CLOSED = ("0.0.0.0", True), ("127.0.0.1", None)
HASH = "bob:$7$101$c2FsdHNhbHQ=$" + "A" * 86 + "==\n"
ANYBODY = "mqtt.listeners.tcp.a = 1883\nmqtt.allow_anonymous = true\nloopback_users = none\n"


def access(settings: Settings) -> dict[int, tuple[str, bool | None]]:
    """Where each port is listened on, and whether clients need no name there."""
    return {one.url.port: (one.url.host, one.allow_anonymous_given) for one in settings.listeners.values()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listener 1883\nallow_anonymous true\n", {1883: OPEN}),
        ("allow_anonymous true\nallow_anonymous false\nlistener 1883\n", {1883: CLOSED}),
        ("allow_anonymous false\nallow_anonymous true\nlistener 1883\n", {1883: OPEN}),
        ("listener 1883\nlistener 1884\nallow_anonymous true\n", {1883: OPEN, 1884: OPEN}),
        ("allow_anonymous true\nlistener 1883\nlistener 1884\n", {1883: OPEN, 1884: OPEN}),
        ("listener 1883\nallow_anonymous true\nlistener 1884\nallow_anonymous false\n", {1883: CLOSED, 1884: CLOSED}),
        ("per_listener_settings true\nlistener 1883\nallow_anonymous true\nlistener 1884\n",
         {1883: OPEN, 1884: CLOSED}),
        ("allow_anonymous true\nper_listener_settings true\nlistener 1883\n", {1883: CLOSED}),
        ("per_listener_settings true\nallow_anonymous true\nlistener 1883\n", {1883: CLOSED}),
        ("listener 1883\nlistener_allow_anonymous true\nlistener 1884\n", {1883: OPEN, 1884: CLOSED}),
        ("listener 1883\nallow_anonymous yes\n", {1883: CLOSED}),
        ("listener 1883\nallow_anonymous true\nacl_file /none\n", {1883: CLOSED}),
        ("listener 1883\nallow_anonymous true\nplugin /usr/lib/dynsec.so\n", {1883: CLOSED}),
        ("listener 1883\nallow_anonymous true\nbind_interface eth1\n", {1883: CLOSED}),
        ("listener 1883\nallow_anonymous true\nclientid_prefixes a-\n", {1883: CLOSED}),
        ("listener 1883\nallow_anonymous true\ninclude_dir /none\n", {1883: CLOSED}),
        ("listener 1883\nallow_anonymous true\nallow_anonymus false\n", {1883: CLOSED}),
        ("listener 1883\nallow_anonymous true\nlistener 9001\nprotocol http_api\n", {1883: OPEN}),
        ("bind_address 127.0.0.1\nport 1883\nlistener 1884 ::\nallow_anonymous true\n",
         {1883: ("127.0.0.1", None), 1884: ("::", True)}),
        ("listener 1883\nlistener 9883\nallow_anonymous true\n", {1883: OPEN, 9883: OPEN}),
        ("listener 1883\nsocket_domain ipv6\nlistener 1884\nsocket_domain ipv4\nallow_anonymous true\n",
         {1883: ("::", True), 1884: OPEN}),
        ("port 1883\nsocket_domain ipv6\nallow_anonymous true\n", {1883: ("::", True)}),
        ("listener 1883\nsocket_domain ipv4\nsocket_domain ipv6\nallow_anonymous false\n", {1883: ("::1", None)}),
        ("listener 1883 10.0.0.1\nsocket_domain ipv4\nallow_anonymous true\n", {1883: ("10.0.0.1", True)}),
        ("listener 1883 0.0.0.0\nsocket_domain ipv6\nallow_anonymous true\n", {1883: CLOSED}),
        ("listener 1883 example.org\nsocket_domain ipv6\nallow_anonymous true\n", {1883: CLOSED}),
        ("listener 1883\nsocket_domain both\nallow_anonymous true\n", {1883: CLOSED}),
    ],
)  # fmt: skip
def test_mosquitto_is_as_open_as_its_file(tmp_path: Path, text: str, expected: object) -> None:
    assert access(settings_of(imported(tmp_path, ("mosquitto.conf", text), kind="mosquitto"))) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("nats.conf", "max_pending: 1\nmqtt { port: 1883 }\n", {1883: OPEN}),
        ("nats.conf", "max_pending: 1\nMQTT { Port: 1883 }\nAuthorization { user: a }\n", {1883: CLOSED}),
        ("nats.conf", "max_pending: 1\nmqtt { port: 1883, no_auth_user: a }\n", {1883: CLOSED}),
        ("nats.conf", "max_pending: 1\nmqtt { port: 1883, authorization { token: t } }\n", {1883: CLOSED}),
        ("nats.conf", "max_pending: 1\nmqtt { port: 1883 }\ninclude ./auth.conf\n", {1883: CLOSED}),
        ("nats.conf", "max_pending: 1\nmqtt { port: 1883 }\nautorization { user: a }\n", {1883: CLOSED}),
        ("nats.conf", "max_pending: 1\nP: 1883\nmqtt { port: $P }\nmqtt { port: 1884, net: '::1' }\n",
         {1884: ("::1", None)}),
        ("nats.conf", "max_pending: 1\nP: 1883\nmqtt { port: $P }\n", {1883: OPEN}),
        ("activemq.xml", '<broker><transportConnector uri="mqtt://0.0.0.0:1883"/><plugins><loggingBrokerPlugin/>'
                         "</plugins></broker>", {1883: OPEN}),
        ("activemq.xml", '<broker><transportConnector uri="mqtt://0.0.0.0:1883"/><plugins><bean class="x.Y"/>'
                         "</plugins></broker>", {1883: CLOSED}),
        ("activemq.xml", '<broker plugins="#login"><transportConnector uri="mqtt://0.0.0.0:1883"/></broker>',
         {1883: CLOSED}),
        ("activemq.xml", '<broker><transportConnector uri="mqtt://0.0.0.0:1883"/><plugins>'
                         '<simpleAuthenticationPlugin anonymousAccessAllowed="true"/></plugins></broker>',
         {1883: OPEN}),
        ("activemq.xml", '<broker><transportConnector name="a" uri="mqtt://127.0.0.1:1883"/>'
                         '<transportConnector name="a" uri="mqtt://10.0.0.1:1883"/></broker>',
         {1883: ("10.0.0.1", True)}),
        ("amps.xml", "<AMPSConfig><Transports><Transport><Name>t</Name><InetAddr>1883</InetAddr></Transport>"
                     "</Transports></AMPSConfig>", {1883: OPEN}),
        ("amps.xml", "<AMPSConfig><Transports><Transport><Name>t</Name><InetAddr>1883</InetAddr><Entitlement><Module>"
                     "mine</Module></Entitlement></Transport></Transports></AMPSConfig>", {1883: CLOSED}),
        ("qpidd.conf", "port=5672\nauth=no\nauth=yes\n", {5672: CLOSED}),
        ("qpidd.conf", "port=5672\nauth=no\nacl-file=/etc/acl\n", {5672: CLOSED}),
        ("qpidd.conf", "port=5672\nauth=no\nrequire-encryption=yes\n", {5672: CLOSED}),
        ("qpidd.conf", "port=5672\nauth=no\nload-module=acl.so\n", {5672: CLOSED}),
        ("qpidd.conf", "port=5672\nauth=no\nload-module=/usr/lib/qpid/daemon/mine.so\n", {5672: CLOSED}),
        ("qpidd.conf", "port=5672\nauth=no\nload-module=/usr/lib/qpid/daemon/linearstore.so\n", {5672: OPEN}),
        ("qpidd.conf", "port=5672\nauth=no\nconfig=/etc/other.conf\n", {5672: CLOSED}),
        ("qpidd.conf", "port=5672\nauth=no\ninterface=127.0.0.1\ninterface=::1\ninterface=eth0\n",
         {5672: ("::1", None)}),
        ("rabbitmq.conf", "listeners.tcp.default = 5672\nlisteners.tcp.default = 5673\n", {5673: CLOSED}),
        ("rabbitmq.conf", "listeners.tcp.a = 5672\nlisteners.tcp = none\nmqtt.listeners.tcp.a = ::1:1883\n",
         {1883: ("::1", None)}),
        ("rabbitmq.conf", "mqtt.listeners.tcp.a = 1883\nmqtt.allow_anonymous = true\n", {1883: CLOSED}),
        ("rabbitmq.conf", "mqtt.listeners.tcp.a = 1883\nmqtt.allow_anonymous = true\nloopback_users = none\n",
         {1883: OPEN}),
        *(("rabbitmq.conf", f"{ANYBODY}{more}\n", {1883: expected}) for more, expected in (
            ("default_permissions.configure = ^$", CLOSED), ("default_permissions.read = ^public$", CLOSED),
            ("default_permissions.write = ''", CLOSED), ("default_permissions.write = (.*", CLOSED),
            ("default_permissions.write = .*\ndefault_permissions.read = ^.*$", OPEN),
            ("default_pass = a", CLOSED), ("default_pass = a\nmqtt.default_pass = a", OPEN),
            ("default_vhost = a", CLOSED), ("default_vhost = a\nmqtt.vhost = a", OPEN),
            ("default_users.guest.read = ^$", CLOSED), ("management.load_definitions = /d.json", CLOSED),
            ("anonymous_login_user = none", CLOSED), ("anonymous_login_pass = a", CLOSED),
            ("default_user = bob\nmqtt.default_user = bob", OPEN),
        )),
        ("rabbitmq.conf", "mqtt.listeners.tcp.a = 1883\nmqtt.allow_anonymous = true\ndefault_user = bob\n"
                          "mqtt.default_user = bob\nloopback_users.bob = true\n", {1883: CLOSED}),
        *(("activemq.xml", f"<broker {attribute}>{inner}<transportConnectors><transportConnector "
                           "uri='mqtt://0.0.0.0:1883'/></transportConnectors></broker>", {1883: expected})
          for attribute, inner, expected in (
            ("", "<messageAuthorizationPolicy><bean class='x.Y'/></messageAuthorizationPolicy>", CLOSED),
            ("messageAuthorizationPolicy='#mine'", "", CLOSED),
            ("", "<plugins><simpleAuthenticationPlugin anonymousAccessAllowed='true'><users><authenticationUser "
                 "username='a' password='b' groups='c'/></users></simpleAuthenticationPlugin></plugins>", OPEN),
        )),
    ],
)  # fmt: skip
def test_others_are_as_open_as_their_files(tmp_path: Path, name: str, text: str, expected: object) -> None:
    assert access(settings_of(imported(tmp_path, (name, text)))) == expected


SPRING = """<beans xmlns="http://www.springframework.org/schema/beans" {beans}>
 <bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer">
  <property name="locations"><value>file:${{activemq.conf}}/credentials.properties</value></property></bean>
 <bean id="logQuery" class="io.fabric8.insight.log.log4j.Log4jLogQuery" lazy-init="false" scope="singleton"/>{outer}
 <broker xmlns="http://activemq.apache.org/schema/core" brokerName="localhost" dataDirectory="d" {attribute}>
  <destinationPolicy><policyMap><policyEntries><policyEntry topic="&gt;"><pendingMessageLimitStrategy>
   <constantPendingMessageLimitStrategy limit="1000"/></pendingMessageLimitStrategy></policyEntry></policyEntries>
  </policyMap></destinationPolicy><managementContext><managementContext createConnector="false"/></managementContext>
  <persistenceAdapter><kahaDB directory="d/kahadb"/></persistenceAdapter>{inner}
  <systemUsage><systemUsage><memoryUsage><memoryUsage percentOfJvmHeap="70"/></memoryUsage>
   <storeUsage><storeUsage limit="100 gb"/></storeUsage></systemUsage></systemUsage>
  <transportConnectors><transportConnector name="mqtt"
   uri="mqtt://0.0.0.0:1883?maximumConnections=1000&amp;wireFormat.maxFrameSize=104857600{query}"/></transportConnectors>
  <shutdownHooks><bean xmlns="http://www.springframework.org/schema/beans"
   class="org.apache.activemq.hooks.SpringContextHook"/></shutdownHooks>
 </broker></beans>"""
"""ActiveMQ's own configuration, and room for more."""
CLASS = "<bean class='{}'/>"


@pytest.mark.parametrize(
    ("where", "more", "expected"),
    [
        ("outer", "", OPEN), ("outer", "<import resource='jetty.xml'/>", OPEN),
        ("outer", "<import resource='file:${activemq.base}/conf/camel.xml'/>", OPEN),
        ("outer", "<import resource='classpath:jetty-spring.xml'/>", OPEN),
        ("outer", "<import resource='security.xml'/>", CLOSED), ("outer", "<import/>", CLOSED),
        ("outer", "<import resource='my-jetty.xml'/>", CLOSED), ("outer", "<import resource='*.xml'/>", CLOSED),
        ("outer", "<context:component-scan xmlns:context='urn:c' base-package='a'/>", CLOSED),
        ("outer", CLASS.format("org.apache.activemq.security.SimpleAuthenticationPlugin"), CLOSED),
        ("outer", CLASS.format("org.apache.activemq.broker.BrokerService"), CLOSED),
        ("outer", CLASS.format("org.springframework.beans.factory.config.MethodInvokingFactoryBean"), CLOSED),
        ("outer", CLASS.format("org.springframework.beans.factory.config.PropertyOverrideConfigurer"), CLOSED),
        ("outer", CLASS.format("com.example.Mine"), CLOSED), ("outer", "<bean parent='x'/>", CLOSED),
        ("outer", "<bean class='org.apache.camel.X'><property name='p'><bean class='com.example.Mine'/></property>"
                  "</bean>", CLOSED),
        ("outer", CLASS.format("org.apache.commons.dbcp2.BasicDataSource"), OPEN),
        ("outer", "<description>ours</description>", OPEN), ("beans", "default-lazy-init='true'", OPEN),
        ("beans", "profile='a'", CLOSED),
        ("inner", "<property name='plugins'><list><ref bean='q'/></list></property>", CLOSED),
        ("inner", "<plugins><ref bean='q'/></plugins>", CLOSED), ("inner", "<gate/>", CLOSED),
        ("inner", "<gate><keeper name='a'/></gate>", CLOSED), ("inner", "<transportConnectors/>", OPEN),
        ("inner", f"<services>{CLASS.format('com.example.Mine')}</services>", CLOSED),
        ("inner", "<destinationInterceptors><virtualDestinationInterceptor/></destinationInterceptors>", OPEN),
        ("inner", f"<destinationInterceptors>{CLASS.format('com.example.Mine')}</destinationInterceptors>", CLOSED),
        ("inner", f"<networkConnectors>{CLASS.format('com.example.Mine')}</networkConnectors>", OPEN),
        ("inner", "<persistenceAdapter><kahaDB indexCacheSize='9'/></persistenceAdapter>", OPEN),
        ("attribute", "useJmx='true' schedulerSupport='true' id='b'", OPEN), ("attribute", "gate='shut'", CLOSED),
        ("attribute", "xmlns:p='urn:p' p:plugins-ref='q'", CLOSED), ("attribute", "services='#mine'", CLOSED),
        ("attribute", "destinationInterceptors='#mine'", CLOSED), ("attribute", "rejectDurableConsumers='a'", CLOSED),
        ("query", "&amp;transport.defaultKeepAlive=9&amp;backlog=5", OPEN), ("query", "&amp;gate=shut", CLOSED),
    ],
)  # fmt: skip
def test_what_nobody_knows_in_a_file_of_activemq_closes_it(
    tmp_path: Path, where: str, more: str, expected: object
) -> None:
    parts = dict.fromkeys(("beans", "outer", "attribute", "inner", "query"), "") | {where: more}
    settings = settings_of(imported(tmp_path, ("activemq.xml", SPRING.format(**parts))))
    assert access(settings) == {1883: expected}


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("", "", OPEN), ("", "<authentication><module>x</module></authentication>", CLOSED),
        ("<IPAllow>10.0.0.0/8</IPAllow>", "", CLOSED), ("<Gate/>", "", CLOSED),
        ("", "<Include>a.xml</Include>", CLOSED),
        ("", "<Users><User>a</User></Users>", CLOSED), ("<TransportFilter>x</TransportFilter>", "", CLOSED),
        ("", "<Logging><Target><Protocol>stdout</Protocol></Target></Logging>", OPEN),
        ("", "<Modules><Module><Name>a</Name><Library>liba.so</Library></Module></Modules>", OPEN),
        ("", "<Admin><InetAddr>8085</InetAddr><Authentication><Module>x</Module></Authentication></Admin>", OPEN),
        ("", "<Authentication><Module>amps-default-authentication-module</Module></Authentication>", OPEN),
        ("", "<Modules><Module><Name>amps-default-authentication-module</Name><Library>libmine.so</Library></Module>"
             "</Modules><Authentication><Module>amps-default-authentication-module</Module></Authentication>", CLOSED),
    ],
)  # fmt: skip
def test_what_nobody_knows_in_a_file_of_amps_closes_it(
    tmp_path: Path, inner: str, outer: str, expected: object
) -> None:
    text = (f"<AMPSConfig>{outer}<Transports><Transport><Name>t</Name><Type>tcp</Type><InetAddr>1883</InetAddr>{inner}"
            "</Transport></Transports></AMPSConfig>")  # fmt: skip
    assert access(settings_of(imported(tmp_path, ("amps.xml", text)))) == {1883: expected}


def test_definitions_of_users_close_a_listener_for_anybody(tmp_path: Path) -> None:
    rights = '{"permissions": [{"user": "guest", "vhost": "/", "configure": "^$", "write": "^$", "read": "^$"}]}'
    files = ("rabbitmq.conf", ANYBODY), ("definitions.json", rights)
    assert access(settings_of(imported(tmp_path, *files, kind="rabbitmq"))) == {1883: CLOSED}


@pytest.mark.parametrize(
    ("uri", "schemes"),
    [
        ("auto+nio://0.0.0.0:5555?auto.protocols=mqtt", ["mqtt"]), ("auto://0.0.0.0:5555", ["auto"]),
        ("auto://0.0.0.0:5555?maximumConnections=5&amp;auto.protocols=default", ["openwire"]),
        ("auto://0.0.0.0:5555?auto.protocols=mqtt,stomp", []), ("auto://0.0.0.0:5555?auto.protocols=mqtt%2Cstomp", []),
        ("auto://0.0.0.0:5555?auto.protocols=default,amqp, stomp,mqtt", ["auto"]),
        ("auto://0.0.0.0:5555?auto.protocols=carrots", []),
        ("auto://0.0.0.0:5555?auto.protocols=stomp&amp;auto.protocols=mqtt", ["mqtt"]),
    ],
)
def test_a_connector_for_some_protocols_is_no_listener_for_all(tmp_path: Path, uri: str, schemes: list[str]) -> None:
    text = f'<broker><transportConnector uri="mqtt://127.0.0.1:1883"/><transportConnector uri="{uri}"/></broker>'
    found = settings_of(imported(tmp_path, ("activemq.xml", text))).listeners.values()
    assert [one.url.scheme for one in found if one.url.port == 5555] == schemes


def test_users_without_their_rights_may_do_nothing(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text(HASH)
    text = f"listener 1883\nallow_anonymous true\npassword_file {tmp_path}/passwd\nacl_file {tmp_path}/acl\n"
    settings = settings_of(imported(tmp_path, ("mosquitto.conf", text)))
    (only,) = settings.permissions
    assert (only.publish, only.subscribe, only.declare) == ((), (), ())
    assert (list(settings.auth.users), access(settings)) == (["bob"], {1883: CLOSED})


def test_users_of_one_listener_do_not_come_in_at_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(HASH)
    text = f"per_listener_settings true\nlistener 1883\npassword_file {tmp_path}/a\nlistener 1884\n"
    same = parse_settings(imported(tmp_path, ("m.conf", f"{text}password_file {tmp_path}/a\n"), kind="mosquitto").text)
    assert list(same.auth.users) == ["bob"]
    for more in ("", f"password_file {tmp_path}/b\n"):
        settings = settings_of(imported(tmp_path, ("m.conf", text + more), kind="mosquitto"))
        assert (dict(settings.auth.users), access(settings)) == ({}, {1883: CLOSED, 1884: CLOSED})


def test_included_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "one.conf").write_text("allow_anonymous false\nlistener 1884\n")
    text = "allow_anonymous true\nlistener 1883\ninclude_dir conf.d\n"
    settings = settings_of(imported(tmp_path, ("mosquitto.conf", text), kind="mosquitto"))
    assert access(settings) == {1883: CLOSED, 1884: CLOSED}
    (tmp_path / "auth.conf").write_text("authorization { user: a, password: b }\n")
    text = "max_pending: 1\nmqtt { port: 1883 }\ninclude ./auth.conf\n"
    assert access(settings_of(imported(tmp_path, ("nats.conf", text)))) == {1883: CLOSED}
    (tmp_path / "more.conf").write_text("MAXCLIENTS 7\n")
    settings = settings_of(imported(tmp_path, ("redis.conf", "maxclients 5\nmaxmemory 1gb\ninclude more.conf\n")))
    assert {one.connections_max for one in settings.listeners.values()} == {7}


@pytest.mark.parametrize(
    ("files", "open_"),
    [
        ({"B.conf": "false", "a.conf": "true"}, False), ({"b.conf": "true", "A.conf": "false"}, True),
        ({"a.conf": "true", "A.conf": "false"}, True), ({"Ab.conf": "true", "aa.conf": "false"}, False),
        ({".z.conf": "false"}, False), ({".z.conf": "false", "a.conf": "true"}, True),
        ({".conf": "false", "a.CONF": "false", "a.conf~": "false"}, True), ({"\u00e4.conf": "true"}, False),
    ],
)  # fmt: skip
def test_files_of_a_folder_count_in_the_order_of_mosquitto(
    tmp_path: Path, files: dict[str, str], open_: bool
) -> None:
    (tmp_path / "d").mkdir()
    for name, word in files.items():
        (tmp_path / "d" / name).write_text(f"allow_anonymous {word}\n")
    text = "listener 1883\nallow_anonymous true\ninclude_dir d\n"
    found = access(settings_of(imported(tmp_path, ("mosquitto.conf", text), kind="mosquitto")))
    assert found == {1883: OPEN if open_ else CLOSED}


def test_a_wildcard_of_redis_leaves_out_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / ".a.conf").write_text("maxclients 9\n")
    for pattern, clients in (("*.conf", 5), (".*.conf", 9)):
        text = f"maxclients 5\nmaxmemory 1gb\ninclude d/{pattern}\n"
        settings = settings_of(imported(tmp_path, ("redis.conf", text)))
        assert {one.connections_max for one in settings.listeners.values()} == {clients}


def test_files_that_include_each_other_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("maxclients 7\nmaxmemory 1gb\n" + "include a.conf\n" * 50)
    assert "without counterpart" in imported(tmp_path, ("redis.conf", "maxmemory 1gb\ninclude a.conf\n")).summary
    blocks = "".join(f"b{n} {{ x: $b{n - 1}, y: $b{n - 1} }}\n" for n in range(1, 40))
    text = f"max_pending: 1\nb0 {{ x: 1 }}\n{blocks}mqtt {{ port: 1883 }}\nmqtt: $b39\n"
    imported(tmp_path, ("nats.conf", text))


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a certificate, c.pem, and its key, k.pem."""
    folder = tmp_path_factory.mktemp("pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
         folder / "k.pem", "-out", folder / "c.pem", "-days", "2", "-subj", "/CN=localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return str(folder)


TLS = {
    "rabbitmq.conf": "listeners.ssl.default = 5671\nssl_options.cacertfile = {0}/c.pem\nssl_options.certfile = "
                     "{0}/c.pem\nssl_options.keyfile = {0}/k.pem\n{1}",
    "mosquitto.conf": "listener 8883\ncafile {0}/c.pem\ncertfile {0}/c.pem\nkeyfile {0}/k.pem\n{1}",
    "nats.conf": "max_pending: 1\nmqtt {{ port: 8883\n tls {{ cert_file: '{0}/c.pem', key_file: '{0}/k.pem', ca_file: "
                 "'{0}/c.pem' {1} }} }}\n",
    "amps.xml": "<AMPSConfig><Transports><Transport><Name>t</Name><Type>tcps</Type><InetAddr>9007</InetAddr>"
                "<Certificate>{0}/c.pem</Certificate><PrivateKey>{0}/k.pem</PrivateKey><CAFile>{0}/c.pem</CAFile>{1}"
                "</Transport></Transports></AMPSConfig>",
}  # fmt: skip
ASKED = {
    "rabbitmq.conf": "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n",
    "mosquitto.conf": "require_certificate true\n", "nats.conf": ", verify: true",
    "amps.xml": "<VerifyClient>true</VerifyClient>",
}  # fmt: skip


@pytest.mark.parametrize("name", TLS)
def test_tls_with_a_ca_is_imported_with_and_without_certificates_of_clients(
    tmp_path: Path, pem: str, name: str
) -> None:
    for more, verify in (("", "none"), (ASKED[name], "required")):
        settings = parse_settings(imported(tmp_path, (name, TLS[name].format(pem, more))).text)
        (listener,) = settings.listeners.values()
        assert listener.tls is not None
        assert (listener.tls.verify, bad_certificates(settings)) == (verify, [])


def test_a_certificate_is_a_login_only_if_it_was_one(tmp_path: Path, pem: str) -> None:
    tls = TLS["mosquitto.conf"].format(pem, ASKED["mosquitto.conf"])
    for more, host, user in (
        ("", "127.0.0.1", "none"), ("use_identity_as_username true\n", "0.0.0.0", "common_name"),
        ("allow_anonymous true\n", "0.0.0.0", "none"),
    ):  # fmt: skip
        (listener,) = parse_settings(imported(tmp_path, ("mosquitto.conf", tls + more)).text).listeners.values()
        assert listener.tls is not None
        assert (listener.url.host, listener.tls.user) == (host, user)


def test_a_file_that_is_no_certificate_makes_the_listener_a_comment(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("not PEM")
    text = f"listener 1883\nlistener 8883\ncertfile {tmp_path}/c.pem\nallow_anonymous true\n"
    found = imported(tmp_path, ("mosquitto.conf", text))
    assert access(settings_of(found)) == {1883: OPEN}
    assert "the listener is a comment" in found.text


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("package.json", '{"name": "a", "version": "1", "description": "", "scripts": {}, "dependencies": {}}',
         "I do not know this file"),
        ("dashboard.json", '{"title": "RabbitMQ", "tags": ["rabbitmq"], "description": "x", "panels": [], "uid": "a", '
                           '"version": 3, "templating": {}}', "I do not know this file"),
        ("pu.xml", '<beans xmlns="http://www.springframework.org/schema/beans" xmlns:os-core="http://www.openspaces.org'
                   '/schema/core"><os-core:embedded-space id="s" name="s"/><bean id="b" class="c">'
                   '<property name="p" value="v"/></bean></beans>', ""),
        ("pom.xml", "<project><name>a</name><build><plugins><plugin/></plugins></build></project>", ""),
        ("nginx.conf", "user www;\nworker_processes 1;\npid /run/x;\nhttp {\n  server { listen 80; }\n}\n",
         "I do not know this file"),
        ("server.properties", "broker.id=0\nlisteners=PLAINTEXT://:9092\nlog.dirs=/tmp\nnum.partitions=1\n", ""),
        ("emqx.conf", "node.name = a@b\nlistener.tcp.external = 1883\nallow_anonymous = true\nlog.to = both\n"
                      "mqtt.max_packet_size = 1MB\n", ""),
        ("web.json", '{"port": 8080, "host": "0.0.0.0"}', "by names that are in files of many systems"),
        ("aclfile.conf", "user bob\ntopic read a/#\n", ""),
        ("camel.xml", '<beans><camelContext xmlns="http://camel.apache.org/schema/spring"/><bean id="b"/></beans>',
         "I do not know this file"),
        ("config.json", '{"name": "x", "modelVersion": "8.0", "authenticationproviders": [], "ports": [], '
                        '"virtualhostnodes": []}', "is the JSON of Qpid's broker in Java, which is not read"),
        ("rabbitmq.config", "%% old\n[\n {rabbit, [{tcp_listeners, [5672]}]}\n].\n", "Erlang's terms"),
        ("broker.xml", '<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"/></configuration>',
         "the broker.xml of ActiveMQ Artemis"),
    ],
)  # fmt: skip
def test_files_of_other_systems_are_taken_for_none_of_these(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        imported(tmp_path, (name, text))
    said = str(caught.value)
    assert words in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("attribute", "adapter", "there"),
    [
        ("", '<jdbcPersistenceAdapter dataSource="#ds"/>', True), ("", "<kahaDB directory='d'/>", True),
        ('persistent="true"', "", True), ('persistent="false"', "", False),
        ('persistent="false"', "<kahaDB directory='d'/>", False),
        ('persistent="false"', '<jdbcPersistenceAdapter dataSource="#ds"/>', False),
    ],
)  # fmt: skip
def test_a_broker_of_activemq_has_a_journal_if_it_keeps_its_messages(
    tmp_path: Path, attribute: str, adapter: str, there: bool
) -> None:
    text = (
        f'<broker xmlns="http://activemq.apache.org/schema/core" {attribute} brokerName="b"><persistenceAdapter>'
        f"{adapter}</persistenceAdapter></broker>"
    )
    assert (settings_of(imported(tmp_path, ("activemq.xml", text))).journal.enabled) is there


@pytest.mark.parametrize(("text", "packet"), [("8m", 8_000_000), ("8mb", 8 << 20), ("8MiB", 8 << 20), ("9k", 9000)])
def test_sizes_of_nats_are_thousands_without_a_b(tmp_path: Path, text: str, packet: int) -> None:
    found = imported(tmp_path, ("nats.conf", f"max_payload: {text}\nmqtt {{ port: 1883 }}\n"))
    assert settings_of(found).listeners["mqtt"].packet_bytes_max == packet


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("mosquitto.conf", "max_queued_messages 5\nmax_queued_messages 9\n", "keep_records = 9 "),
        ("mosquitto.conf", "listener 1883\nmax_connections 5\nmax_connections 9\n", "connections_max = 9 "),
        ("mosquitto.conf", "listener 1883\nmax_packet_size 5000\nmessage_size_limit 2000\n", 'packet_max = "2kB"'),
        ("redis.conf", "client-output-buffer-limit pubsub 1mb 0 0\nclient-output-buffer-limit pubsub 2mb 0 0\n",
         'lag_bytes = "2MiB"'),
        ("redis.conf", "client-output-buffer-limit pubsub 1mb 0 0 normal 0 0 0 PUBSUB 3m 0 0\n", 'lag_bytes = "3MB"'),
        ("redis.conf", "maxclients 5\nMaxClients 9\n", "connections_max = 9 "),
        ("rabbitmq.conf", "consumer_timeout = 60000\nconsumer_timeout = 120000\n", 'ack_age = "2m"'),
        ("rabbitmq.conf", "vm_memory_high_watermark.relative = 0.1\nvm_memory_high_watermark.absolute = 64MB\n",
         'memory = "64MB"'),
        ("p.json", '[{"name": "a", "vhost": "/", "pattern": ".*", "definition": {"max-length": 5}}, {"name": "a", '
                   '"vhost": "/", "pattern": ".*", "definition": {"max-length": 7, "max-length": 9}}]',
         'lag_records = "> 9"'),
        ("nats.conf", "max_pending: 1mb\nMAX_PENDING: 2m\nmqtt { port: 1883 }\n", 'lag_bytes = "2MB"'),
    ],
)  # fmt: skip
def test_of_repeated_limits_the_one_of_the_other_system_counts(
    tmp_path: Path, name: str, text: str, line: str
) -> None:
    found = imported(tmp_path, (name, text))
    settings_of(found)
    key = line.partition(" =")[0]
    assert [one for one in found.text.splitlines() if f"{key} = " in one and not one.startswith("#")], found.text
    assert all(line.strip() in one for one in found.text.splitlines() if f"{key} = " in one), found.text


def test_a_rate_that_nobody_is_below_makes_no_rule(tmp_path: Path) -> None:
    begin = "com.gs.transport_protocol.lrmi.slow-consumer"
    found = imported(tmp_path, ("gs.properties", f"{begin}.enabled=true\n{begin}.throughput=0\n"))
    assert "drain_rate" not in found.text
    assert found.lost == []


def test_only_the_listener_that_cannot_be_had_is_said_to_be_a_comment(tmp_path: Path) -> None:
    text = ('<broker><transportConnector uri="ssl://0.0.0.0:61617"/><transportConnector uri="tcp://0.0.0.0:61616"/>'
            "</broker>")  # fmt: skip
    assert [one.value for one in imported(tmp_path, ("activemq.xml", text)).lost] == ["ssl://0.0.0.0:61617"]
