"""Processes of consumers, forked from one that has imported what they need: to import it takes more
than most of them work until they are killed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "deltalake",
        "obstore.store",
        "pandas",
        "keyrange.consumer.transactional_commits",
        "keyrange.storage.delta_store",
        "keyrange.wire.chunk_decoder",
        "keyrange.wire.produced_batches",
        "queries.consuming",
        "queries.sharing_consumer",
        "queries.transacting",
    ]
)


def start_forked(main: Callable[..., object], *arguments: str) -> BaseProcess:
    process = _FORKS.Process(target=main, args=arguments)
    process.start()
    return process


def run_forked(main: Callable[..., object], *arguments: str) -> int:
    """How a function ended in a process of its own; a signal's number below zero."""
    process = start_forked(main, *arguments)
    process.join()
    assert process.exitcode is not None
    return process.exitcode
