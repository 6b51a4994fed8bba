"""The volumes of a real broker, and of one that tells a principal nothing."""

from __future__ import annotations

import os
import shutil

from brokers.real_broker import PASSWORD, USER
from brokers.secured_brokers import ASKS_FOR_RIGHTS, SecuredBroker, SecuredSettings, as_user
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.guard.log_dirs import LogDirReader
from spark.sources import client


def test_a_broker_tells_the_size_of_its_volume(broker: EmbeddedBroker) -> None:
    reader = LogDirReader(client(broker))
    reading = reader.read(20_000)
    reader.close()
    usage = shutil.disk_usage(broker.log_dir)
    [answer] = reading.answers
    [volume] = answer.volumes
    assert (reading.brokers, reading.failure) == (frozenset((1,)), "")
    assert (volume.broker, os.path.realpath(volume.log_dir)) == (
        1,
        os.path.realpath(broker.log_dir),
    )
    assert volume.total_bytes == usage.total
    # Others write to the same filesystem.
    assert abs(volume.usable_bytes - usage.free) < usage.total / 10


def test_a_principal_without_rights_sees_nothing_and_not_room() -> None:
    """The broker answers with an empty list; its error is beside it."""
    settings = SecuredSettings(
        listeners=("SASL_PLAINTEXT",),
        users={USER: PASSWORD},
        properties=ASKS_FOR_RIGHTS,
    )
    with SecuredBroker(settings) as broker:
        plain = client(broker)
        reader, other = LogDirReader(as_user(plain, broker, USER)), LogDirReader(plain)
        [refused] = reader.read(20_000).answers
        needed = "CLUSTER_AUTHORIZATION_FAILED: the principal needs DESCRIBE on the cluster"
        assert (refused.volumes, refused.failure) == ((), needed)
        assert other.read(20_000).failure == ""
        reader.close()
        other.close()
