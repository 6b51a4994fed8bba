"""What a connection lets others on the way see or be, as its options say: legal, and rarely meant.

Spark's own connector takes such options without a word, so they are not refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.security_properties import is_loopback

_log = logging.getLogger(__name__)

# What logs in with something that can be read, used again, or guessed from what is sent.
_BARE_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def warn_of_exposure(settings: ClientSettings, prefix: str = "kafka.") -> None:
    """A WARN for each thing that is exposed. To be called once a run, where it begins."""
    for text in exposures(settings, prefix):
        _log.warning("%s", text)


def exposures(settings: ClientSettings, prefix: str = "kafka.") -> Iterator[str]:
    """Each with its option and what mends it; nothing for brokers on this machine's loopback."""
    remote = [host for host, _ in settings.bootstrap_servers if not is_loopback(host)]
    if not remote:
        return
    protocol, mechanism = settings.security_protocol, settings.sasl_mechanism
    if protocol.endswith("SSL") and not settings.ssl_check_hostname:
        yield (
            f"option '{prefix}ssl.endpoint.identification.algorithm' is empty: whoever has any "
            f"certificate of the same authority can pass for {remote[0]}. Set it to https, or "
            "leave it out"
        )
    if protocol == "SASL_PLAINTEXT" and mechanism in _BARE_MECHANISMS:
        yield (
            f"option '{prefix}security.protocol' is SASL_PLAINTEXT with {mechanism}: what logs in "
            f"at {remote[0]} can be read or guessed by whoever is on the way. Set it to SASL_SSL"
        )
    if not protocol.startswith("SASL") and (settings.sasl_jaas or settings.sasl_username):
        yield (
            f"option '{prefix}security.protocol' is {protocol}: the login of {prefix}sasl.* is not "
            f"used at {remote[0]}. Set it to SASL_SSL"
        )
    has_trusted = settings.ssl_truststore_location or settings.ssl_truststore_certificates
    if not protocol.endswith("SSL") and (has_trusted or settings.has_certificate):
        yield (
            f"option '{prefix}security.protocol' is {protocol}: the certificates of {prefix}ssl.* "
            f"are not used, and whoever is on the way to {remote[0]} reads all that is sent. Set "
            f"it to {'SASL_SSL' if protocol.startswith('SASL') else 'SSL'}"
        )
