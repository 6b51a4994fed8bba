"""What a principal needs to write to a topic, on a broker that asks for it (guides/topics.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from brokers.real_broker import PASSWORD, USER
from brokers.secured_brokers import ASKS_FOR_RIGHTS, SecuredBroker, SecuredSettings, as_user
from faults.killed_sender import batches, rows_of, transaction_settings
from keyrange.errors import DeniedError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.model.sender_messages import Token
from keyrange.kafka.transactional_producer import TransactionalProducer
from keyrange.options.kafka_properties import ClientSettings

pytestmark = pytest.mark.broker

TOPIC, ID = "out", "keyrange:query:0"
EXACT, PREFIX = ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED
# Of the guide's table what brokers refuse without; and the error's words where it lacks.
NEEDED = {
    (ResourceType.TOPIC, ACLOperation.WRITE): f"a batch of .* bytes for {TOPIC}-0 was refused",
    (ResourceType.TOPIC, ACLOperation.READ): f"the group's offset for {TOPIC}-0 was refused",
    (
        ResourceType.TRANSACTIONAL_ID,
        ACLOperation.WRITE,
    ): "the coordinator of the transaction was refused",
    (ResourceType.GROUP, ACLOperation.READ): "the coordinator of the group was refused",
}
PLACES = {
    ResourceType.TOPIC: ResourcePattern(ResourceType.TOPIC, TOPIC, EXACT),
    ResourceType.TRANSACTIONAL_ID: ResourcePattern(
        ResourceType.TRANSACTIONAL_ID, "keyrange:", PREFIX
    ),
    ResourceType.GROUP: ResourcePattern(ResourceType.GROUP, "keyrange:", PREFIX),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    settings = SecuredSettings(
        listeners=("SASL_PLAINTEXT",), users={USER: PASSWORD}, properties=ASKS_FOR_RIGHTS
    )
    with SecuredBroker(settings) as started:
        yield started


@pytest.fixture(scope="module")
def admin(broker: SecuredBroker) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    made.create_topics([NewTopic(TOPIC, 1, 1)])
    yield made
    made.close()


@pytest.fixture
def sender(broker: SecuredBroker) -> Iterator[TransactionalProducer]:
    cluster = Cluster(as_user(ClientSettings(), broker, USER))
    yield TransactionalProducer(cluster, replace(transaction_settings(TOPIC), transactional_id=ID))
    cluster.close()


@pytest.fixture
def lacking(request: pytest.FixtureRequest, admin: KafkaAdminClient) -> Iterator[None]:
    """The principal has all rights of the guide but one."""
    given = [
        ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, PLACES[kind])
        for kind, operation in NEEDED
        if (kind, operation) != request.param
    ]
    admin.create_acls(given)
    yield
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    admin.delete_acls([ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, anything)])


def sent(sender: TransactionalProducer) -> None:
    sender.start()
    sender.send(batches(TOPIC, rows_of(0, 10), 1), Token(0))


@pytest.mark.parametrize("lacking", [None], indirect=True)
def test_the_rights_of_the_guide_are_enough(lacking: None, sender: TransactionalProducer) -> None:
    sent(sender)


@pytest.mark.parametrize(
    ("lacking", "said"),
    NEEDED.items(),
    indirect=["lacking"],
    ids=[f"{kind.name}-{right.name}" for kind, right in NEEDED],
)
def test_a_right_that_lacks_is_named(
    lacking: None, said: str, sender: TransactionalProducer
) -> None:
    with pytest.raises(DeniedError, match=rf"AUTHORIZATION_FAILED\] {said}.*{ID}"):
        sent(sender)
