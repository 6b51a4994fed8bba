"""The embedded broker is a real Kafka: it keeps its data, has all listeners, and never leaks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from brokers.old_brokers import OldBroker
from brokers.real_broker import Record, Topics, client_config, wait_until
from brokers.secured_brokers import SecuredBroker, SecuredSettings
from commands.commanding import document, run, succeed, text
from keyrange.embedded import daemon
from keyrange.embedded.broker import EmbeddedBroker, EmbeddedCluster
from keyrange.embedded.process import answers_api_versions, is_free
from keyrange.embedded.settings import BrokerSettings
from keyrange.errors import InvalidError, KeyrangeError


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedBroker]:
    """A broker of this file's own, to be stopped and killed."""
    with EmbeddedBroker() as started:
        yield started


@pytest.fixture
def own_topics(own: EmbeddedBroker) -> Iterator[Topics]:
    made = Topics(own)
    yield made
    made.close()


def produce_and_count(topics: Topics, topic: str, value: bytes) -> int:
    topics.produce(topic, [value])
    return topics.offsets(topic)[0][1]


@pytest.mark.slow  # the nemesis kills brokers, and misses what was acknowledged
def test_what_was_acknowledged_survives_a_kill(own: EmbeddedBroker, own_topics: Topics) -> None:
    topic = own_topics.create_topic()
    sent = [b"%d" % number for number in range(1000)]
    own_topics.produce(topic, sent)
    address, pid = own.bootstrap_servers, own.pid
    own.kill()
    assert not psutil.pid_exists(pid)
    assert not answers_api_versions(own.nodes[0].port())
    own.start()
    assert own.bootstrap_servers == address
    assert own.pid != pid
    assert own_topics.values(topic) == sent


def test_stop_and_restart_keep_ports_and_data(own: EmbeddedBroker, own_topics: Topics) -> None:
    topic = own_topics.create_topic()
    assert produce_and_count(own_topics, topic, b"first") == 1
    address, pid = own.bootstrap_servers, own.pid
    own.stop()
    assert not own.nodes[0].running
    assert is_free(own.nodes[0].port())
    with pytest.raises(KeyrangeError, match="is not running"):
        _ = own.pid
    own.start()
    assert (own.bootstrap_servers, own.pid != pid) == (address, True)
    assert produce_and_count(own_topics, topic, b"second") == 2
    assert own_topics.values(topic) == [b"first", b"second"]


def test_who_chose_a_port_that_another_broker_has_by_now_takes_another(own: EmbeddedBroker) -> None:
    """That one answers while this one is still starting."""
    late = EmbeddedBroker()
    late.ports[0].listeners["PLAINTEXT"] = own.nodes[0].port()
    with late:
        assert late.nodes[0].port() != own.nodes[0].port()
        assert late.nodes[0].running
        assert answers_api_versions(late.nodes[0].port())


def test_partitions_are_folders_of_log_dir(own: EmbeddedBroker, own_topics: Topics) -> None:
    topic = own_topics.create_topic(partitions=2)
    expected = [own.log_dir / f"{topic}-0", own.log_dir / f"{topic}-1"]
    # The broker makes the second folder a moment after it has told of the partition.
    wait_until(lambda: sorted(own.log_dir.glob(f"{topic}-*")) == expected)


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("PLAINTEXT", ""),
        ("SSL", ""),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ],
)
def test_each_listener_serves(
    broker: EmbeddedBroker, topics: Topics, protocol: str, mechanism: str
) -> None:
    topic = topics.create_topic()
    config = client_config(broker, protocol, mechanism)
    with KafkaProducer(**config) as producer:
        assert producer.send(topic, b"value").get(timeout=120).offset == 0


def test_a_wrong_password_and_an_unknown_ca_are_refused(broker: EmbeddedBroker) -> None:
    wrong = client_config(broker, "SASL_PLAINTEXT", "SCRAM-SHA-256")
    wrong |= {"sasl_plain_password": "wrong", "bootstrap_timeout_ms": 3000}
    with pytest.raises(KafkaError):
        KafkaConsumer(**wrong)
    unknown = client_config(broker, "SSL") | {"bootstrap_timeout_ms": 3000}
    del unknown["ssl_cafile"]
    with pytest.raises(KafkaError):
        KafkaConsumer(**unknown)


@pytest.mark.slow  # tests of security read from such a listener
def test_mutual_tls_names_the_client() -> None:
    settings = SecuredSettings(
        listeners=("SSL",), mutual_tls=True, properties={"ssl.client.auth": "required"}
    )
    with SecuredBroker(settings) as started:
        config = client_config(started, "SSL")
        with KafkaConsumer(**config) as consumer:
            assert consumer.topics() == set()
        del config["ssl_certfile"], config["ssl_keyfile"]
        with pytest.raises(KafkaError):
            KafkaConsumer(**config, bootstrap_timeout_ms=3000)


def test_topic_helpers_do_what_they_say(topics: Topics) -> None:
    topic = topics.create_topic("orders", partitions=2, configs={"cleanup.policy": "compact"})
    assert topic.startswith("orders-")
    placed = topics.produce(
        topic,
        [
            Record(b"a", key=b"k", partition=1, timestamp_ms=7, headers=[("h", b"1")]),
            Record(None, key=b"k", partition=1),
            Record(b"b", partition=0, key=b"l"),
        ],
        compression_type="zstd",
    )
    assert placed == [(1, 0), (1, 1), (0, 0)]
    assert topics.values(topic, 1) == [b"a", None]
    topics.add_partitions(topic, 3)
    assert topics.offsets(topic) == {0: (0, 1), 1: (0, 2), 2: (0, 0)}
    topics.delete_topic(topic)
    assert topic not in topics.admin.list_topics()


def test_deleted_records_move_the_first_offset(topics: Topics) -> None:
    topic = topics.create_topic()
    topics.produce(topic, [b"a", b"b", b"c"])
    topics.delete_records(topic, {0: 2})
    assert topics.offsets(topic) == {0: (2, 3)}


def test_aborted_transactions_are_hidden_from_read_committed(topics: Topics) -> None:
    topic = topics.create_topic()
    topics.produce_transaction(topic, [b"aborted"], commit=False)
    topics.produce_transaction(topic, [b"committed"])
    assert topics.values(topic, isolation_level="read_committed") == [b"committed"]
    assert topics.values(topic) == [b"aborted", b"committed"]
    # A control record follows each transaction.
    assert topics.offsets(topic) == {0: (0, 4)}


PARENT = """
import sys, threading, time
from keyrange.embedded.broker import EmbeddedBroker
broker = EmbeddedBroker()
# From a thread that ends: the broker belongs to the process, not to the thread.
starter = threading.Thread(target=broker.start)
starter.start()
starter.join()
print(broker.pid, broker.directory, flush=True)
time.sleep(600)
"""


def test_a_broker_dies_with_its_parent_and_leaves_nothing() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, directory = parent.stdout.readline().split()
    try:
        time.sleep(0.2)
        assert alive(int(pid))
        assert Path(directory).is_dir()
        # Halted, it cannot end by itself when it notices that its files are gone.
        os.kill(int(pid), signal.SIGSTOP)
        parent.kill()
        parent.wait()
        wait_until(lambda: not alive(int(pid)))
        wait_until(lambda: not Path(directory).exists())
    finally:
        parent.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody reaps does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    broken = BrokerSettings(properties={"num.io.threads": "none"})
    cluster = EmbeddedBroker(broken)
    with pytest.raises(KeyrangeError) as caught:
        cluster.__enter__()
    assert caught.value.condition.name == "BROKER_NOT_STARTED"
    assert "num.io.threads" in str(caught.value)
    assert not cluster.directory.exists()


def test_settings_that_cannot_be_are_refused_together() -> None:
    with pytest.raises(InvalidError) as caught:
        SecuredSettings(nodes=2, racks=("a",), listeners=("SASL_SSL", "TLS"), version="3.2.3")
    for part in ("1 racks", "TLS", "at least one user", "3.2.3 is older than 3.3"):
        assert part in str(caught.value)


@pytest.mark.slow  # tests of replicas and faults lose brokers of clusters too
def test_a_cluster_of_three_survives_the_loss_of_one() -> None:
    settings = BrokerSettings(nodes=3, racks=("a", "b", "c"), heap_mb=256)
    with EmbeddedCluster(settings) as cluster:
        topics = Topics(cluster)
        topic = topics.create_topic(replicas=3)
        assert produce_and_count(topics, topic, b"before") == 1
        racks = {each["rack"] for each in topics.admin.describe_cluster()["brokers"]}
        assert racks == {"a", "b", "c"}
        [described] = topics.admin.describe_topics([topic])
        leader = described["partitions"][0]["leader_id"]
        cluster.nodes[leader - 1].kill()
        assert produce_and_count(topics, topic, b"during") == 2
        cluster.nodes[leader - 1].start()
        assert topics.values(topic) == [b"before", b"during"]
        topics.close()


@pytest.mark.slow  # test_groups.py runs such a broker too; who kills one is in the long forms
def test_the_oldest_supported_broker_runs_and_survives_a_kill() -> None:
    with OldBroker() as started:
        topics = Topics(started)
        topic = topics.create_topic()
        assert produce_and_count(topics, topic, b"before") == 1
        started.kill()
        started.start()
        assert topics.values(topic) == [b"before"]
        topics.close()


def started(place: Path) -> str:
    """What a command prints that has ended again."""
    command = [sys.executable, "-m", "keyrange.cli.main", "broker", "start", "--dir", str(place)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_a_detached_broker_outlives_its_command_and_is_found_again(tmp_path: Path) -> None:
    place = tmp_path / "broker"
    address = started(place)
    try:
        assert text("broker", "start", "--dir", place).strip() == address
        found = document("broker", "status", "--dir", place)
        assert found["bootstrap_servers"] == address
        assert answers_api_versions(int(address.rpartition(":")[2]))
        os.kill(found["pid"], signal.SIGKILL)
        wait_until(lambda: daemon.status(place) is None)
        assert started(place) == address
    finally:
        assert "stopped" in succeed("broker", "stop", "--dir", place).stderr
    assert run("broker", "status", "--dir", place).exit_code == 3
    assert is_free(int(address.rpartition(":")[2]))
