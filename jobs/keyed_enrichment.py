"""Ask an HTTP service about every record, those of a key in order; its answers go to a Delta table.

    spark-submit --master 'local[4]' \
        --packages io.delta:delta-spark_4.2_2.13:4.4.0 --properties-file conf/spark-defaults.conf \
        jobs/keyed_enrichment.py --bootstrap-servers broker:9092 --topic orders \
        --service https://prices.example/quote --authorization env:PRICES_TOKEN \
        --table /lake/quotes --checkpoint /lake/_checkpoints/quotes \
        --commit-table /lake/quotes_commits --option parallelism=4

In the place of `--master 'local[4]'` on a cluster, with tables on storage that all of it reaches,
and `parallelism` the cores of all executors:

    --master spark://master:7077
    --master yarn --archives environment.tar.gz#environment
    --master k8s://https://api:6443 --deploy-mode cluster \
        --conf spark.kubernetes.container.image=registry.example/spark-keyrange:1

keyrange has to be installed for the Python of driver and executors: on the hosts, in the packed
environment, or in the image; there the job is `local:///opt/jobs/keyed_enrichment.py`, beside
`process.py` and `ingest.py`. With `--deploy-mode cluster` on YARN those two come along by
`--py-files jobs/process.py,jobs/ingest.py`. conf/members/ has what each cluster manager needs where
key ranges are to stay with their executors, connector/guides/deploy.md how the packed environment
is named on YARN.

A value is POSTed as it is, with Idempotency-Key `topic-partition-offset`: a service that is asked
again, after a crash for example, can tell. Answers 2xx are rows. Where the service is away or says
that it is busy, the call is made again after a pause, `--tries` times. A record that gets no answer
so comes again later (`redelivery.backoff`), later ones of its key wait for it, and after the last
time (`maxDeliveries`) it goes to the dead letters. Records without a value are done without a call.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from ingest import Started, run_query
from keyrange.errors import KeyrangeError
from keyrange.options.secrets import parse_secret
from process import process_arguments, start_with

SCHEMA = "topic string, partition int, offset bigint, key binary, answer string"

# A slow key gives way to the others of its task after a minute, and no call goes on for longer.
OPTIONS = {"splitBy": "keyRange", "batch.time.budget": "60s", "record.timeout": "60s"}

BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
PAUSE_S, PAUSE_MAX_S = 0.1, 10.0
ANSWER_BYTES_MAX = 1024 * 1024
# Looked at here, since what http.client says of a value that it refuses holds the value.
HEADER_VALUE = re.compile(r"[\x20-\x7e\xa0-\xff]+")


class Refused(RuntimeError):
    """The service did not answer a record with 2xx."""


class Service:
    """Asks the service about a record; each task has a connection of its own, which stays open."""

    def __init__(self, url: str, timeout_s: float, tries: int, authorization: str) -> None:
        self._url = urlsplit(url)
        self._timeout_s = timeout_s
        self._tries = tries
        # By value or by reference (env:NAME, file:PATH); looked up where the call is made.
        self._authorization = authorization
        self._connection: HTTPConnection | None = None

    def __call__(self, record: Any) -> tuple[Any, ...] | None:
        if record.value is None:
            return None
        for attempt in range(1, self._tries + 1):
            wait_s = 0.0
            try:
                response, body = self._post(record)
            except (OSError, HTTPException) as failure:
                said = f"no answer: {type(failure).__name__} {failure}"
            else:
                if 200 <= response.status < 300:
                    answer = body.decode("utf-8")
                    return record.topic, record.partition, record.offset, record.key, answer
                said = f"{response.status} {response.reason}"
                if response.status not in BUSY:
                    break
                wait_s = seconds(response.headers.get("Retry-After", ""))
            if attempt < self._tries:
                pause_s = PAUSE_S * 2 ** (attempt - 1) * random.uniform(0.5, 1)
                time.sleep(min(max(pause_s, wait_s), PAUSE_MAX_S))
        raise Refused(said)

    def _post(self, record: Any) -> tuple[HTTPResponse, bytes]:
        if self._connection is None:
            kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
            host = self._url.hostname or ""
            self._connection = kind(host, self._url.port, timeout=self._timeout_s)
        place = f"{record.topic}-{record.partition}-{record.offset}"
        headers = {"Content-Type": "application/octet-stream", "Idempotency-Key": place}
        if self._authorization:
            headers["Authorization"] = authorization_value(self._authorization)
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            self._connection.request("POST", path, record.value, headers)
            response = self._connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX + 1)
            if len(body) > ANSWER_BYTES_MAX:
                raise HTTPException(f"the answer is longer than {ANSWER_BYTES_MAX:,} bytes")
            return response, body
        except BaseException:
            # Also where the record's time is up: half an answer would be taken for the next one's.
            self._connection.close()
            self._connection = None
            raise


def authorization_value(reference: str) -> str:
    """What is referred to, fit for a header: files and variables often end with a line break.

    Raises SECRET_NOT_FOUND where this process has it not, and ValueError, without the value, where
    no header can hold it.
    """
    value = parse_secret(reference).reveal().strip()
    if not HEADER_VALUE.fullmatch(value):
        raise ValueError(
            "the value of --authorization is empty, or holds a line break or another character "
            "that a header cannot hold"
        )
    return value


def seconds(retry_after: str) -> float:
    """What Retry-After says; a date, which it may be too, counts as nothing."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = process_arguments("Ask an HTTP service about every record, each key in order.")
    parser.add_argument("--service", required=True, metavar="URL", help="what values are POSTed to")
    parser.add_argument(
        "--authorization",
        default="",
        metavar="env:NAME|file:PATH",
        help="where the executors find the value of the header Authorization",
    )
    parser.add_argument(
        "--timeout", type=float, default=5.0, metavar="SECONDS", help="of one answer (%(default)s)"
    )
    parser.add_argument(
        "--tries", type=int, default=3, help="calls before a record comes again later (%(default)s)"
    )
    given = parser.parse_args(arguments)
    url = urlsplit(given.service)
    if url.scheme not in ("http", "https") or not url.hostname:
        parser.error(f"--service: {given.service} is not an http or https URL")
    if given.tries < 1 or given.timeout <= 0:
        parser.error("--tries and --timeout have to be more than 0")
    try:
        if given.authorization and not parse_secret(given.authorization).is_reference:
            parser.error("--authorization: env:NAME or file:PATH, the value would be seen by all")
        # Only the executors may have it.
        with suppress(KeyrangeError):
            if given.authorization:
                authorization_value(given.authorization)
    except ValueError as failure:
        parser.error(f"--authorization: {failure}")
    return given


def start(spark: SparkSession, arguments: argparse.Namespace, options: dict[str, str]) -> Started:
    service = Service(
        arguments.service, arguments.timeout, arguments.tries, arguments.authorization
    )
    return start_with(service, SCHEMA, spark, arguments, OPTIONS | options)


def main() -> int:
    arguments = parse_arguments()
    return run_query(f"enrich {arguments.topic}", arguments, start)


if __name__ == "__main__":
    sys.exit(main())
