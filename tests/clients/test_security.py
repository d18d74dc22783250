"""SASL and ACLs with three client libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.clients.adapters import CLIENTS, Client, Login, Refused, load
from tests.clients.conftest import KINDS_OF_SERVERS
from tests.clients.reading import collect, everything
from tests.clients.servers import Server, Unavailable, serve
from tests.support.patience import PATIENCE

ck_admin = pytest.importorskip("confluent_kafka.admin", reason="needs: confluent-kafka")

_MODULE = "org.apache.kafka.common.security"
ADMIN = Login("PLAIN", "admin", "admin-secret")
LOGINS = {
    "PLAIN": Login("PLAIN", "alice", "alice-secret"),
    "SCRAM-SHA-256": Login("SCRAM-SHA-256", "bob", "bob-secret"),
    "SCRAM-SHA-512": Login("SCRAM-SHA-512", "carol", "carol, too"),
}
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{_MODULE}.plain.PlainLoginModule required username=admin "
    'password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";',
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{_MODULE}.scram.ScramLoginModule required;",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{_MODULE}.scram.ScramLoginModule required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",  # Kafka's controller connects as ANONYMOUS
}
OWN: dict[str, dict[str, str]] = {
    "klog": {"klog.sasl.plaintext.allow": "true"},  # without it klog offers no PLAIN on a listener without TLS
    "kafka": {"sasl.mechanism.inter.broker.protocol": "PLAIN", "inter.broker.listener.name": "PLAINTEXT"},
}


@pytest.fixture(scope="module")
def secured() -> Iterator[Callable[[str], Server]]:
    """Returns the broker of a kind, with users whose ACLs allow all resources that begin with `open`."""
    running: dict[str, Server] = {}
    with ExitStack() as stack:

        def get(kind: str) -> Server:
            if kind not in running:
                running[kind] = stack.enter_context(serve(kind, SETTINGS | OWN[kind]))
                _prepare(running[kind])
            return running[kind]

        yield get


def _prepare(server: Server) -> None:
    admin = ck_admin.AdminClient(
        {
            "bootstrap.servers": server.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": ADMIN.mechanism,
            "sasl.username": ADMIN.user,
            "sasl.password": ADMIN.password,
        }
    )
    mechanisms = {
        "SCRAM-SHA-256": ck_admin.ScramMechanism.SCRAM_SHA_256,
        "SCRAM-SHA-512": ck_admin.ScramMechanism.SCRAM_SHA_512,
    }
    users = [
        ck_admin.UserScramCredentialUpsertion(
            login.user, ck_admin.ScramCredentialInfo(mechanisms[name], 4096), login.password.encode()
        )
        for name, login in LOGINS.items()
        if name in mechanisms
    ]
    for future in admin.alter_user_scram_credentials(users).values():
        future.result(PATIENCE)
    kinds = ck_admin.ResourceType
    rules = [
        ck_admin.AclBinding(
            kind,
            "open",
            ck_admin.ResourcePatternType.PREFIXED,
            f"User:{login.user}",
            "*",
            ck_admin.AclOperation.ALL,
            ck_admin.AclPermissionType.ALLOW,
        )
        for login in LOGINS.values()
        for kind in (kinds.TOPIC, kinds.GROUP, kinds.TRANSACTIONAL_ID)
    ]
    for future in admin.create_acls(rules).values():
        future.result(PATIENCE)
    assert len(
        admin.describe_acls(
            ck_admin.AclBindingFilter(
                kinds.ANY,
                None,
                ck_admin.ResourcePatternType.ANY,
                None,
                None,
                ck_admin.AclOperation.ANY,
                ck_admin.AclPermissionType.ANY,
            )
        ).result(PATIENCE)
    ) == len(rules)


@pytest.fixture(params=KINDS_OF_SERVERS)
def server(secured: Callable[[str], Server], request: pytest.FixtureRequest) -> Server:
    try:
        return secured(request.param)
    except Unavailable as missing:
        pytest.skip(f"needs: {missing}")


@pytest.fixture(params=CLIENTS)
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def admin_client(server: Server, library: str) -> Client:
    return load(library, server.bootstrap, ADMIN)


def _created(client: Client, name: str) -> str:
    admin = client.admin()
    admin.create_topic(name)
    admin.close()
    return name


def _produced(client: Client, topic: str) -> None:
    producer = client.producer()
    producer.send(topic, b"x")
    producer.flush()


@pytest.mark.parametrize("mechanism", LOGINS)
def test_users_of_every_mechanism_can_use_what_their_acls_allow(
    server: Server, library: str, admin_client: Client, name: str, mechanism: str
) -> None:
    topic = _created(admin_client, f"open-{name}")
    client = load(library, server.bootstrap, LOGINS[mechanism])
    producer = client.producer(transactional_id=f"open-{name}")
    producer.begin()
    producer.send(topic, b"x")
    producer.flush()
    producer.commit()
    producer.close()
    assert [each.value for each in everything(client, topic, 1, "read_committed")] == [b"x"]
    member = client.consumer(f"open-{name}")
    member.subscribe([topic])
    collect(member, 1)
    member.commit({(topic, 0): 1})
    member.close()


def test_operations_that_no_acl_allows_are_refused(
    server: Server, library: str, admin_client: Client, name: str
) -> None:
    topic = _created(admin_client, f"closed-{name}")
    client = load(library, server.bootstrap, LOGINS["PLAIN"])
    admin = client.admin()
    assert topic not in admin.topics()
    with pytest.raises(Refused) as refused:
        admin.delete_topic(topic)
    assert refused.value.code == 29
    with pytest.raises(Refused) as refused:
        admin.create_topic(f"closed-{name}-other")
    assert refused.value.code == 29
    admin.close()
    with pytest.raises(Exception, match=r"(?i)topic.?authorization|\b29\b"):
        _produced(client, topic)
    with pytest.raises(Exception, match=r"(?i)transactional.?id.?authorization|\b53\b"):
        client.producer(transactional_id=f"closed-{name}")
    consumer = client.consumer(f"closed-{name}")
    consumer.subscribe([_created(admin_client, f"open-{name}")])
    with pytest.raises(Exception, match=r"(?i)group.?authorization|\b30\b"):
        collect(consumer, 1)
    consumer.close()
    everywhere = admin_client.admin()
    assert topic in everywhere.topics()
    everywhere.close()


@pytest.mark.parametrize("mechanism", LOGINS)
def test_a_wrong_password_is_refused(server: Server, mechanism: str) -> None:
    import confluent_kafka as ck

    login = LOGINS[mechanism]
    errors: list[ck.KafkaError] = []
    producer = ck.Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": login.user,
            "sasl.password": login.password + "!",
            "error_cb": errors.append,
            "log_level": 0,
        }
    )
    for _ in range(600):
        producer.poll(0.1)
        if any(error.code() == ck.KafkaError._AUTHENTICATION for error in errors):
            return
    raise AssertionError(errors)


def test_a_client_without_sasl_gets_no_metadata(server: Server) -> None:
    admin = ck_admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    # librdkafka reports a closed connection, or a timeout if it was waiting for the next connection.
    with pytest.raises(Exception, match="_TRANSPORT|_TIMED_OUT"):
        admin.list_topics(timeout=2)
