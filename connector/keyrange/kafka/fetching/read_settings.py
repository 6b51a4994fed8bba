"""How splits are read, from what the options of a source say."""

from __future__ import annotations

from dataclasses import dataclass

from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.options import SourceOptions
from keyrange.wire.chunk_decoder import DecodeSettings
from keyrange.wire.key_range_selection import Selection


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How splits are read; plain data.

    `raises_recreated`: the caller goes on at the start of a topic that was created anew, so that
    this is raised, whatever `fail_on_data_loss` says. `scope`: which partitions share the state of
    keys: their records come in the order of the splits.
    """

    decode: DecodeSettings
    fail_on_data_loss: bool
    poll_timeout_ms: int
    raises_recreated: bool = False
    scope: StateScope = OWN_STATE


def read_settings(options: SourceOptions, by_offset: bool = False) -> ReadSettings:
    """What the options of a source say of reading; `by_offset` as `Selection` has it."""
    keys = options.key_ranges
    return ReadSettings(
        decode=DecodeSettings(
            columns=options.chosen_columns,
            batch_rows=options.max_batch_rows,
            batch_bytes=options.max_batch_bytes,
            record_batch_bytes_max=options.max_record_batch_bytes,
            selection=Selection(keys.keys, keys.nulls_first, by_offset),
        ),
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_ms=options.poll_timeout_ms,
        scope=options.commits.scope,
    )
