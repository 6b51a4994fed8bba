"""Brokers whose quota plug-in does not do what client quotas say, and brokers that do."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers.java import IGNORING_PLUGIN, compiled
from brokers.real_broker import wait_until
from brokers.secured_brokers import SecuredBroker, SecuredSettings
from guards.guard_processes import ALICE, ClusterQuotas, by_file, guarding, run, said
from keyrange.embedded import jars
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.embedded.settings import BrokerSettings
from keyrange.guard.client_quotas import brokers_that_ignore_quotas
from keyrange.guard.model.quota_entities import CANARY, RATE, QuotaEntity
from keyrange.kafka.cluster import Cluster
from keyrange.options.kafka_properties import ClientSettings, Secret
from spark.sources import client

PLUGIN = "client.quota.callback.class"


@pytest.fixture(scope="module")
def plugged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker with a plug-in that limits nobody."""
    classes = compiled("IgnoringQuotas", IGNORING_PLUGIN, tmp_path_factory.mktemp("plugin"))
    resolve = jars.resolve
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jars, "resolve", lambda *given: [*resolve(*given), classes])
        with EmbeddedBroker(BrokerSettings(properties={PLUGIN: "IgnoringQuotas"})) as started:
            yield started


def test_that_quotas_have_no_effect_is_found_out_and_said(
    plugged: EmbeddedBroker, tmp_path: Path
) -> None:
    factor, log = tmp_path / "factor", tmp_path / "log"
    factor.write_text("1")
    quotas = ClusterQuotas(plugged)
    quotas.write(ALICE, RATE, 5_000.0)
    wait_until(lambda: quotas() == {ALICE: {RATE: 5_000.0}})
    with guarding(plugged, log, by_file(factor) | {"guard.dry.run": "false"}) as process:
        wait_until(lambda: bool(said(log, "guard")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    assert [each["error"] for each in said(log, "trouble")] == [
        f"client quotas have no effect on brokers 1, which have {PLUGIN} IgnoringQuotas"
    ]
    # What it was tried with is gone.
    wait_until(lambda: quotas() == {ALICE: {RATE: 5_000.0}})
    quotas.close()


@pytest.mark.slow
def test_a_dry_run_tries_nothing(plugged: EmbeddedBroker, tmp_path: Path) -> None:
    factor, log = tmp_path / "factor", tmp_path / "log"
    factor.write_text("1")
    with guarding(plugged, log, by_file(factor)) as process:
        wait_until(lambda: bool(said(log, "guard")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    [trouble] = said(log, "trouble")
    assert trouble["error"] == f"the brokers' {PLUGIN} IgnoringQuotas may ignore client quotas"


def test_brokers_that_follow_quotas_are_known(broker: EmbeddedBroker) -> None:
    """Kafka's own quotas, on a broker that others share: nobody else notices."""
    cluster = Cluster(client(broker))
    quotas = ClusterQuotas(broker)
    before = quotas()
    assert brokers_that_ignore_quotas(cluster) == ()
    wait_until(lambda: quotas() == before)
    cluster.close()
    quotas.close()


@pytest.mark.slow
def test_that_quotas_count_is_known_of_a_guard_whose_name_is_made_of_a_certificate() -> None:
    """Its own quota goes before that of all users, and lets everything pass."""
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1@certificates/,DEFAULT"}
    settings = SecuredSettings(listeners=("SSL",), mutual_tls=True, properties=rules)
    with SecuredBroker(settings) as secured:
        quotas, tls = ClusterQuotas(secured), secured.tls
        assert tls is not None
        assert tls.client is not None
        there = {QuotaEntity("client@certificates", None): {RATE: 1e12}}
        quotas.become(there)
        host, _, port = secured.bootstrap_servers_of("SSL").rpartition(":")
        cluster = Cluster(
            ClientSettings(
                bootstrap_servers=((host, int(port)),),
                security_protocol="SSL",
                ssl_truststore_certificates=Secret(tls.ca.read_text()),
                ssl_keystore_certificate_chain=Secret(tls.client.certificate.read_text()),
                ssl_keystore_key=Secret(tls.client.key.read_text()),
            )
        )
        assert brokers_that_ignore_quotas(cluster) == ()
        wait_until(lambda: quotas() == there)
        cluster.close()
        quotas.close()


@pytest.mark.slow
def test_what_was_tried_by_a_guard_that_was_killed_is_released(
    plugged: EmbeddedBroker,
) -> None:
    quotas = ClusterQuotas(plugged)
    before = quotas()
    quotas.write(QuotaEntity("", CANARY), RATE, 1_024.0)
    wait_until(lambda: quotas() != before)
    assert run(plugged, "release", "--confirm") == ["released"]
    assert quotas() == before
    quotas.close()
