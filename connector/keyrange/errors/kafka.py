"""The rows of the catalogue about the cluster: connections, logins, rights and answers."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Condition, Kind

KAFKA_CONDITIONS: Final = (
    Condition(
        "UNSUPPORTED_BROKER",
        Kind.INVALID,
        "keyrange needs Kafka 2.3 or newer on every broker",
        "A broker does not speak a version of Kafka's protocol that keyrange needs.",
        "the versions in the message; `keyrange doctor --bootstrap-servers HOST:PORT`",
    ),
    Condition(
        "BROKER_UNREACHABLE",
        Kind.UNAVAILABLE,
        "check kafka.bootstrap.servers (of the volume guard kafka.admin.bootstrap.servers), "
        "kafka.security.protocol, the brokers' advertised listeners, and the network",
        "No broker answered, or a connection was lost. A stream goes on when it is started again; "
        "no position has moved.",
        "`keyrange doctor --bootstrap-servers HOST:PORT` on the driver's host and on an "
        "executor's: the address in the message is the broker's advertised one",
    ),
    Condition(
        "NOT_A_BROKER",
        Kind.INVALID,
        "name host and port of a broker's listener in kafka.bootstrap.servers, and no web console, "
        "REST proxy or schema registry",
        "Something answered that does not speak Kafka's protocol, such as a web server.",
        "the address in the message: what listens there, and `listeners` in the brokers' settings",
    ),
    Condition(
        "TLS_FAILED",
        Kind.DENIED,
        "check kafka.security.protocol against the listener, and the certificates",
        "The broker was reached, and TLS could not be agreed on.",
        "the certificate's text in the message, and which listener the port belongs to",
        "security.md",
    ),
    Condition(
        "SASL_AUTHENTICATION_FAILED",
        Kind.DENIED,
        "check kafka.sasl.mechanism and the credentials",
        "The broker refused the credentials. keyrange does not try again.",
        "mechanism and credentials; the broker's log has the reason it does not tell clients",
        "security.md",
    ),
    Condition(
        "SECRET_NOT_FOUND",
        Kind.INVALID,
        "set the variable, or put the file, where driver and executors run; write literal: in "
        "front of a secret that itself begins with env: or file:",
        "An option refers to an environment variable or a file (`env:`, `file:`) that is not "
        "there in the process that connects: the driver, or an executor.",
        "the reference in the message, on the host that raised it",
        "security.md",
    ),
    Condition(
        "PACKAGE_NOT_FOUND",
        Kind.INVALID,
        "install the named package into the Python of driver and executors",
        "An option or command needs a Python package that is not installed.",
        "the line that the message names, such as `pip install '.[kerberos]'`",
        "security.md",
    ),
    Condition(
        "STORE_NOT_READ",
        Kind.INVALID,
        "check the named kafka.ssl.* properties: location, type and password",
        "A trust store or key store could not be read.",
        "the file in the message, on the host that raised it, and its password",
        "security.md",
    ),
    Condition(
        "TOKEN_REFUSED",
        Kind.DENIED,
        "check kafka.sasl.oauthbearer.token.endpoint.url, clientId, clientSecret and scope",
        "The token endpoint answered, and gave no token that could be used.",
        "the HTTP status or the certificate's text in the message",
        "security.md",
    ),
    Condition(
        "TOKEN_ENDPOINT_UNREACHABLE",
        Kind.UNAVAILABLE,
        "check kafka.sasl.oauthbearer.token.endpoint.url and the network",
        "The token endpoint did not answer.",
        "the address in the message, from the host that raised it",
        "security.md",
    ),
    Condition(
        "NO_KERBEROS_TICKET",
        Kind.DENIED,
        "check serviceName, principal, keyTab and ticketCache of kafka.sasl.jaas.config, and "
        "krb5.conf, on the host that raised it",
        "The process that connects, the driver or an executor, has no Kerberos ticket for the "
        "broker and got none. It has sent the broker nothing of the login.",
        "the text of the Kerberos library in the message; klist and kinit on the host that raised "
        "it",
        "security.md",
    ),
    Condition(
        "KDC_UNREACHABLE",
        Kind.UNAVAILABLE,
        "check the KDCs of the realm in the krb5.conf of the process that connects (KRB5_CONFIG), "
        "and the network",
        "The Kerberos library found no KDC of the realm, or none answered.",
        "the realm in the message, and kinit on the host that raised it",
        "security.md",
    ),
    Condition(
        "AUTHORIZATION_FAILED",
        Kind.DENIED,
        "grant the principal READ and DESCRIBE on the named topics and groups",
        "The broker knows the principal and denies it the operation.",
        "the topic, group or cluster in the message: `kafka-acls --list`",
        "security.md",
    ),
    Condition(
        "GROUP_OFFSETS_REFUSED",
        Kind.DENIED,
        "name another group id, of a group without members, on which the principal has READ",
        "Offsets could not be written to the Kafka group that mirrors them. It is a warning once "
        "and a counter in the progress; the query goes on, and its own positions are unaffected.",
        "`kafka-consumer-groups --describe --group GROUP --members`",
        "reading.md",
    ),
    Condition(
        "GROUP_OFFSETS_SHARED",
        Kind.INVALID,
        "give each query a kafka.group.id of its own, or groupIdPrefix, which makes one up for "
        "each; or set mirrorOffsets=false in one of them",
        "Another query commits offsets of the same partitions to the Kafka group that mirrors this "
        "query's, or another source or run of the same query does. Kafka's tools show the lag of "
        "whichever wrote last. It is a warning once for each run; the query goes on, and its own "
        "positions are unaffected.",
        "host and process in the message, which plan the other one",
        "reading.md",
    ),
    Condition(
        "GROUP_COORDINATOR_UNAVAILABLE",
        Kind.UNAVAILABLE,
        "look at the health of the brokers and of topic __consumer_offsets",
        "The broker that coordinates a Kafka group did not answer.",
        "the brokers' health; partitions of __consumer_offsets without a leader",
    ),
    Condition(
        "UNKNOWN_TOPIC_OR_PARTITION",
        Kind.INVALID,
        "create the topic, or correct the option that names it: subscribe or assign, or for the "
        "volume guard throttle.factor.topic",
        "A topic or partition that was named is not in the cluster.",
        "the name in the message; `keyrange doctor --bootstrap-servers HOST:PORT --topic TOPIC`",
    ),
    Condition(
        "REQUEST_TIMED_OUT",
        Kind.UNAVAILABLE,
        "look at the broker's health and load; kafka.request.timeout.ms sets how long to wait",
        "A broker took longer to answer than `kafka.request.timeout.ms`, or gave no records for "
        "longer than `kafkaConsumer.pollTimeoutMs`.",
        "the broker's load; a fetch of huge batches over a slow link",
    ),
    Condition(
        "BROKER_ERROR",
        Kind.UNAVAILABLE,
        "look the named Kafka error up; the broker's log says more",
        "A broker answered with an error of its own, or partitions have no leader.",
        "the name of Kafka's error in the message, and that broker's log",
    ),
)
