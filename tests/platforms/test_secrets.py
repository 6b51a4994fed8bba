"""Secrets of every way to log in, before a broker that takes them and one that refuses them: in no
log record, no error with all its local values, and no repr."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from brokers.certificates import issue
from brokers.logins import COUNT, create_numbers, for_spark
from keyrange.errors import KeyrangeError
from keyrange.kafka.security import tokens
from keyrange.options import SourceOptions, parse_options
from keyrange.source.stream import KeyRangeStreamReader
from platforms.every_login import WAYS, EveryLogin
from platforms.kdc import by_key_tab
from platforms.signed_tokens import CLIENT_SECRET, Signer
from project.unseen import MARK, check_log, log_everything, whole_text


@pytest.fixture(scope="module")
def topic(every: EveryLogin) -> str:
    return create_numbers(every.topics, "secrets")


@pytest.fixture(autouse=True)
def _from_the_start(every: EveryLogin) -> Iterator[None]:
    every.provider.grant()
    tokens.forget()
    yield
    every.provider.grant()
    tokens.forget()


def key_of(key_tab: Path) -> list[str]:
    """The keys in a key tab, as texts that a log could hold."""
    said = subprocess.run(
        ["klist", "-k", "-K", "-t", str(key_tab)], capture_output=True, text=True, check=True
    )
    keys = [bytes.fromhex(each) for each in re.findall(r"0x([0-9a-f]+)", said.stdout)]
    assert keys
    return [form for key in keys for form in forms(key)]


def forms(secret: bytes) -> list[str]:
    """How bytes are shown: as they are in a text, in hexadecimal digits, in base64."""
    return [secret.hex(), repr(secret)[2:-1], base64.b64encode(secret).decode()]


@dataclass
class Case:
    """Options that log in, others that do not, the condition that this fails with, and texts that
    neither may show."""

    good: dict[str, str]
    bad: dict[str, str]
    condition: str
    secrets: list[str]


def case(every: EveryLogin, way: str) -> Case:
    good = every.options(way)
    if way == "GSSAPI":
        old = every.kdc.add("outdated")
        every.kdc.export("outdated")
        bad = every.with_ticket(by_key_tab(old, "outdated"))
        return Case(good, bad, "NO_KERBEROS_TICKET", key_of(every.reader) + key_of(old))
    if way == "OAUTHBEARER":
        basic = base64.b64encode(f"reader:{CLIENT_SECRET}".encode()).decode()
        return Case(good, good, "SASL_AUTHENTICATION_FAILED", [MARK, basic])
    if way == "SSL":
        stranger = issue("client", issue("stranger", authority=True))
        bad = every.with_certificate(stranger)
        keys = [line for each in (every.client, stranger) for line in each.key_pem().split()]
        wrapped = [line for each in (good, bad) for line in each["ssl.keystore.key"].split()]
        return Case(good, bad, "TLS_FAILED", [MARK, *(k for k in keys + wrapped if len(k) > 20)])
    return Case(
        good, every.with_password(way, f"{MARK}-wrong"), "SASL_AUTHENTICATION_FAILED", [MARK]
    )


def source_options(given: dict[str, str], topic: str) -> SourceOptions:
    own = {"subscribe": topic, "startingOffsets": "earliest", "fetchOffset.numRetries": "1"}
    return parse_options(own | for_spark(given), "stream")


@pytest.mark.parametrize("way", WAYS)
def test_nobody_is_told_a_secret(
    every: EveryLogin, topic: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_everything(caplog)
    of_way = case(every, way)
    options = source_options(of_way.good, topic)
    reader = KeyRangeStreamReader(options)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    tasks = reader.partitions(reader.initialOffset(), end)
    rows = sum(batch.num_rows for task in tasks for batch in reader.read(task))
    assert rows == COUNT
    shown = [repr(options), repr(vars(reader)), repr(tasks), repr(end)]
    reader.stop()

    secrets = of_way.secrets
    if way == "OAUTHBEARER":
        stranger = Signer().token(3600)
        every.provider.endpoint.grant(access_token=stranger, expires_in=3600)
        tokens.forget()
        secrets += [
            part for each in (*every.provider.granted, stranger) for part in each.split(".")[1:]
        ]
    shown += refusal(source_options(of_way.bad, topic), of_way.condition)
    if way == "OAUTHBEARER":
        every.provider.endpoint.answer = lambda: (401, b'{"error": "invalid_client"}')
        tokens.forget()
        shown += refusal(options, "TOKEN_REFUSED")
    assert not [(each, text) for each in secrets for text in shown if each in text]
    check_log(caplog, secrets)


def refusal(options: SourceOptions, condition: str) -> list[str]:
    """What is to be seen of a query that may not begin."""
    reader = KeyRangeStreamReader(options)
    with pytest.raises(KeyrangeError) as caught:
        reader.initialOffset()
    shown = repr(vars(reader))
    reader.stop()
    failure = caught.value
    assert failure.condition.name == condition
    return [shown, str(failure), repr(failure), whole_text(failure)]
