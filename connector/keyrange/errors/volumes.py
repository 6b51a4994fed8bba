"""The rows of the catalogue about the volume guard."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Rows

_rows = Rows("volume-guard.md")

VOLUME_CONDITIONS: Final = (
    # Where the throttle factor is from: guard/factor_sources.py
    _rows.unavailable(
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
    _rows.invalid(
        "QUOTA_UNREADABLE",
        "let quota.file name a readable file that holds a number of bytes; another source's own "
        "documentation says what it needs",
        "`quota.file` holds no number of bytes, or another source returns none, so the guard does "
        "not know from which rate on to slow producers.",
        "the file or the source, where the guard runs",
    ),
    # Quotas, and what the cluster says to changes of them: kafka/client_quotas.py
    _rows.invalid(
        "QUOTAS_REFUSED",
        "look the named Kafka error up; nothing more is altered until the next check",
        "The cluster refused a change of client quotas.",
        "Kafka's error in the message; `keyrange volumes release` lists the clients that are "
        "throttled",
    ),
    _rows.unavailable(
        "QUOTAS_UNAVAILABLE",
        "wait for the cluster to have a controller; the guard tries again at the next check",
        "The cluster has no controller that takes changes of client quotas at the moment.",
        "the brokers' health; the guard tries again at the next check",
    ),
)
