"""Whether a job's JVM has Delta, asked before a session is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from keyrange.errors import KeyrangeError
from keyrange.jobs.delta_jars import check_delta


def test_spark_is_asked_for_delta_before_it_is_to_write() -> None:
    def jvm(failure: Exception | None) -> Any:
        def load(_: str) -> None:
            if failure is not None:
                raise failure

        thread = SimpleNamespace(getContextClassLoader=lambda: SimpleNamespace(loadClass=load))
        lang = SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread))
        return SimpleNamespace(java=SimpleNamespace(lang=lang))

    check_delta(jvm(None))
    missing = Py4JJavaError("no class", SimpleNamespace(_target_id="o1", _gateway_client=None))
    with pytest.raises(KeyrangeError, match=r"DELTA_NOT_FOUND.*--packages io.delta:delta-spark_"):
        check_delta(jvm(missing))
