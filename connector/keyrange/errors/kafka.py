"""The rows of the catalogue about the cluster and what is in it: connections, logins, rights,
answers, volumes, records."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Rows

_rows = Rows("security.md")
_no_guide = Rows()
_reading = Rows("reading.md")
_volumes = Rows("volume-guard.md")
_on_call = Rows("on-call.md")

_FAIL_ON_DATA_LOSS = (
    "check the topic's retention and whether it was recreated; to give up the records that are "
    "gone and read on from the first one that is left, restart with failOnDataLoss=false"
)

_PARTITIONS_GONE = (
    "name again what the options left out; to read on without the partitions, and keep where they "
    "stood, restart with failOnDataLoss=false, which leaves out their records until they are back; "
    "a new checkpoint reads all partitions from startingOffsets on, and a sink has what it has "
    "already twice"
)

KAFKA_CONDITIONS: Final = (
    _no_guide.invalid(
        "UNSUPPORTED_BROKER",
        "keyrange needs Kafka 2.3 or newer on every broker, and 2.5 for transactions",
        "A broker does not speak a version of Kafka's protocol that keyrange needs.",
        "the versions in the message; `keyrange doctor --bootstrap-servers HOST:PORT`",
    ),
    _no_guide.unavailable(
        "BROKER_UNREACHABLE",
        "check kafka.bootstrap.servers (of the volume guard kafka.admin.bootstrap.servers), "
        "kafka.security.protocol, the brokers' advertised listeners, and the network",
        "No broker answered, or a connection was lost. A stream goes on when it is started again; "
        "no position has moved.",
        "`keyrange doctor --bootstrap-servers HOST:PORT` on the driver's host and on an "
        "executor's: the address in the message is the broker's advertised one",
    ),
    _no_guide.invalid(
        "NOT_A_BROKER",
        "name host and port of a broker's listener in kafka.bootstrap.servers, and no web console, "
        "REST proxy or schema registry",
        "Something answered that does not speak Kafka's protocol, such as a web server.",
        "the address in the message: what listens there, and `listeners` in the brokers' settings",
    ),
    _rows.denied(
        "TLS_FAILED",
        "check kafka.security.protocol against the listener, and the certificates",
        "The broker was reached, and TLS could not be agreed on.",
        "the certificate's text in the message, and which listener the port belongs to",
    ),
    _rows.denied(
        "SASL_AUTHENTICATION_FAILED",
        "check kafka.sasl.mechanism and the credentials",
        "The broker refused the credentials. keyrange does not try again.",
        "mechanism and credentials; the broker's log has the reason it does not tell clients",
    ),
    _rows.invalid(
        "SECRET_NOT_FOUND",
        "set the variable, or put the file, where driver and executors run; write literal: in "
        "front of a secret that itself begins with env: or file:",
        "An option refers to an environment variable or a file (`env:`, `file:`) that is not "
        "there in the process that connects: the driver, or an executor.",
        "the reference in the message, on the host that raised it",
    ),
    _rows.invalid(
        "PACKAGE_NOT_FOUND",
        "install the named package into the Python of driver and executors",
        "An option or command needs a Python package that is not installed.",
        "the line that the message names, such as `pip install '.[kerberos]'`",
    ),
    _rows.invalid(
        "STORE_NOT_READ",
        "check the named ssl.* properties: location, type and password",
        "A trust store or key store could not be read.",
        "the file in the message, on the host that raised it, and its password",
    ),
    _rows.denied(
        "TOKEN_REFUSED",
        "check kafka.sasl.oauthbearer.token.endpoint.url, clientId, clientSecret and scope",
        "The token endpoint answered, and gave no token that could be used.",
        "the HTTP status or the certificate's text in the message",
    ),
    _rows.unavailable(
        "TOKEN_ENDPOINT_UNREACHABLE",
        "check kafka.sasl.oauthbearer.token.endpoint.url and the network",
        "The token endpoint did not answer.",
        "the address in the message, from the host that raised it",
    ),
    _rows.denied(
        "NO_KERBEROS_TICKET",
        "check serviceName, principal, keyTab and ticketCache of kafka.sasl.jaas.config, and "
        "krb5.conf, on the host that raised it",
        "The process that connects, the driver or an executor, has no Kerberos ticket for the "
        "broker and got none. It has sent the broker nothing of the login.",
        "the text of the Kerberos library in the message; klist and kinit on the host that raised "
        "it",
    ),
    _rows.unavailable(
        "KDC_UNREACHABLE",
        "check the KDCs of the realm in the krb5.conf of the process that connects (KRB5_CONFIG), "
        "and the network",
        "The Kerberos library found no KDC of the realm, or none answered.",
        "the realm in the message, and kinit on the host that raised it",
    ),
    _rows.denied(
        "AUTHORIZATION_FAILED",
        "grant the principal READ and DESCRIBE on the named topics and groups; to write, WRITE on "
        "the named topics and transactional ids",
        "The broker knows the principal and denies it the operation.",
        "the topic, group or cluster in the message: `kafka-acls --list`",
    ),
    _reading.denied(
        "GROUP_OFFSETS_REFUSED",
        "name another group id, of a group without members, on which the principal has READ",
        "Offsets could not be written to the Kafka group that mirrors them. It is a warning once "
        "and a counter in the progress; the query goes on, and its own positions are unaffected.",
        "`kafka-consumer-groups --describe --group GROUP --members`",
    ),
    _reading.invalid(
        "GROUP_OFFSETS_SHARED",
        "give each query a kafka.group.id of its own, or groupIdPrefix, which makes one up for "
        "each; or set mirrorOffsets=false in one of them",
        "Another query commits offsets of the same partitions to the Kafka group that mirrors this "
        "query's, or another source or run of the same query does. Kafka's tools show the lag of "
        "whichever wrote last. It is a warning once for each run; the query goes on, and its own "
        "positions are unaffected.",
        "host and process in the message, which plan the other one",
    ),
    _no_guide.unavailable(
        "GROUP_COORDINATOR_UNAVAILABLE",
        "look at the health of the brokers and of topic __consumer_offsets",
        "The broker that coordinates a Kafka group did not answer.",
        "the brokers' health; partitions of __consumer_offsets without a leader",
    ),
    _no_guide.invalid(
        "UNKNOWN_TOPIC_OR_PARTITION",
        "create the topic, or correct what names it: subscribe or assign; of a topic that is "
        "written the argument of into_topic, keyrange.Topic, topic_writer or a consumer's "
        "transaction, or deadLetterTopic; for the volume guard throttle.factor.topic",
        "A topic or partition that was named is not in the cluster.",
        "the name in the message; `keyrange doctor --bootstrap-servers HOST:PORT --topic TOPIC`",
    ),
    _no_guide.unavailable(
        "REQUEST_TIMED_OUT",
        "look at the broker's health and load; kafka.request.timeout.ms sets how long to wait",
        "A broker took longer to answer than `kafka.request.timeout.ms`, or gave no records for "
        "longer than `kafkaConsumer.pollTimeoutMs`.",
        "the broker's load; a fetch of huge batches over a slow link",
    ),
    _no_guide.unavailable(
        "BROKER_ERROR",
        "look the named Kafka error up; the broker's log says more",
        "A broker answered with an error of its own, or partitions have no leader.",
        "the name of Kafka's error in the message, and that broker's log",
    ),
    # Where the throttle factor is from: guard/factor_sources.py
    _volumes.unavailable(
        "THROTTLE_FACTOR_UNREADABLE",
        "let throttle.factor.file name a file that holds a number from 0 to 1 and that the "
        "driver can read, or throttle.factor.topic a topic whose last record is one; another "
        "source's own documentation says what it needs",
        "`throttle.factor.file`, or the last record of `throttle.factor.topic`, is no number from "
        "0 to 1, or another source fails or returns something else. The last factor holds for "
        "throttle.factor.validity.duration, then the fallback.",
        "the file, the topic or the source, where the query is planned",
    ),
    # Where the rate is from that producers are slowed from: guard/quota_sources.py
    _volumes.invalid(
        "QUOTA_UNREADABLE",
        "let quota.file name a readable file that holds a number of bytes; another source's own "
        "documentation says what it needs",
        "`quota.file` holds no number of bytes, or another source returns none, so the guard does "
        "not know from which rate on to slow producers.",
        "the file or the source, where the guard runs",
    ),
    # Quotas, and what the cluster says to changes of them: guard/client_quotas.py
    _volumes.invalid(
        "QUOTAS_REFUSED",
        "look the named Kafka error up; nothing more is altered until the next check",
        "The cluster refused a change of client quotas.",
        "Kafka's error in the message; `keyrange volumes release` lists the clients that are "
        "throttled",
    ),
    _volumes.unavailable(
        "QUOTAS_UNAVAILABLE",
        "wait for the cluster to have a controller; the guard tries again at the next check",
        "The cluster has no controller that takes changes of client quotas at the moment.",
        "the brokers' health; the guard tries again at the next check",
    ),
    # Records: those that are gone, and those that cannot be read.
    _on_call.data_loss(
        "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        _FAIL_ON_DATA_LOSS,
        "A partition that was added while the query ran has lost its first records already.",
        "the topic's retention, and how long the query stood still",
    ),
    _on_call.data_loss(
        "KAFKA_DATA_LOSS.PARTITIONS_DELETED",
        _PARTITIONS_GONE,
        "Partitions that the query has a position in are not in the cluster any more, or brokers "
        "do not tell this principal of them; or the options do not name them any more: the "
        "message says which. With failOnDataLoss=false the query reads on and keeps its position "
        "in them: if a topic returns with its id, or the options name it again, the query "
        "continues there.",
        "whether the topic was deleted on purpose, and subscribe, subscribePattern or assign "
        "beside `keyrange checkpoint show LOCATION`",
    ),
    _on_call.data_loss(
        "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
        _FAIL_ON_DATA_LOSS,
        "A partition ends before the position of the query: its log was truncated or replaced.",
        "an unclean leader election in the brokers' logs, or a topic that was made anew",
    ),
    _on_call.data_loss(
        "KAFKA_DATA_LOSS.PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT",
        _PARTITIONS_GONE,
        "As PARTITIONS_DELETED, for a query with `kafka.group.id`.",
        "whether the topic was deleted on purpose",
    ),
    _on_call.data_loss(
        "KAFKA_DATA_LOSS.LOG_TRUNCATED",
        _FAIL_ON_DATA_LOSS,
        "A log was truncated below records that the query has read (unclean leader election). "
        "They may be in the sink, and are not in Kafka any more.",
        "the offsets in the message, and the brokers' logs around the change of the leader",
    ),
    _on_call.data_loss(
        "KAFKA_DATA_LOSS.TOPIC_RECREATED",
        _FAIL_ON_DATA_LOSS,
        "The topic has another id than before: it was deleted and created anew. Its offsets begin "
        "anew too.",
        "the tool or person that created the topic anew; with failOnDataLoss=false the query "
        "reads the new topic from its start",
    ),
    _on_call.data_loss(
        "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE",
        _FAIL_ON_DATA_LOSS,
        "Records of a planned batch are not in the log any more, mostly because retention has "
        "deleted them.",
        "the partition and offsets in the message, against `retention.ms` and `retention.bytes`",
    ),
    _no_guide.corrupt(
        "KAFKA_MALFORMED_RECORD_TIMESTAMP",
        "the producer wrote a timestamp that is not in milliseconds; correct the producer",
        "A record has a timestamp that Spark's type cannot hold.",
        "the record at the named offset; its producer writes seconds or microseconds",
    ),
    _no_guide.corrupt(
        "CORRUPT_BATCH",
        "read the same offsets from another replica; if it stays, the log itself is damaged",
        "The bytes of a record batch do not agree with their own checksum or lengths, and those of "
        "another replica in sync, if there is one, do not either. The task handed on nothing of "
        "the batch.",
        "the partition and offset in the message; the warning before it says which replicas",
    ),
    _no_guide.corrupt(
        "CORRUPT_FRAME",
        "check that the address belongs to a Kafka broker and that no proxy cuts the stream",
        "The bytes that a connection delivered are no answer of Kafka's protocol.",
        "the address in the message: a proxy, or a port of something else",
        passes=True,
    ),
    _no_guide.corrupt(
        "UNSUPPORTED_BATCH_VERSION",
        "the topic holds batches of message format v0 or v1; rewrite it with a broker of 0.11 "
        "or newer, or start behind them, which leaves their records out",
        "The topic holds batches in a format that Kafka before 0.11 wrote.",
        "the offset in the message; startingOffsets behind it",
    ),
    _no_guide.corrupt(
        "UNSUPPORTED_COMPRESSION",
        "let producers use gzip, snappy, lz4 or zstd, which keyrange reads",
        "A record batch is compressed by a codec that is not known.",
        "the offset in the message",
    ),
    _on_call.invalid(
        "BATCH_TOO_LARGE",
        "raise option maxRecordBatchBytes if such batches are meant to be",
        "A record batch is larger than `maxRecordBatchBytes`, which bounds the memory of a task.",
        "the size in the message, and the topic's `max.message.bytes`",
        guide="tuning.md",
    ),
)
