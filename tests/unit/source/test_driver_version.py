"""A reader is unpickled by the version of keyrange that pickled it, and by no other one."""

from __future__ import annotations

import pickle  # noqa: TID251  as Spark does with a reader
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import keyrange
from keyrange.errors import InvalidError
from keyrange.jobs.data_source import JobReader
from keyrange.jobs.definition import JobDefinition
from keyrange.options import parse_options
from keyrange.source.batch import KeyRangeBatchReader
from keyrange.source.pushdown import KeyRangePushdownReader
from keyrange.source.stream import KeyRangeStreamReader
from keyrange.work.model.output_table import OutputTable
from queries.scripted import PATTERN, SERVERS

OPTIONS = parse_options(SERVERS | PATTERN)
READERS = (
    KeyRangeBatchReader(OPTIONS),
    KeyRangePushdownReader(OPTIONS),
    KeyRangeStreamReader(OPTIONS),
    JobReader(OPTIONS, JobDefinition((OutputTable("/t", "{}"),), "{}", "map", ())),
)


@pytest.mark.parametrize("reader", READERS, ids=lambda each: type(each).__name__)
def test_another_version_is_refused_by_name(
    reader: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyrange, "__version__", "0.9.1")
    pickled = pickle.dumps(reader)
    assert type(pickle.loads(pickled)) is type(reader)
    monkeypatch.setattr(keyrange, "__version__", "0.9.2")
    with pytest.raises(InvalidError) as caught:
        pickle.loads(pickled)
    assert caught.value.condition.name == "VERSIONS_DIFFER"
    assert "the driver has keyrange 0.9.1" in caught.value.message
    assert "this executor has keyrange 0.9.2 in " in caught.value.message


def test_the_version_is_that_of_the_package_that_is_imported(tmp_path: Path) -> None:
    """By what pip writes beside it; where an update has left another one, by what is in them."""
    (tmp_path / "keyrange").mkdir()
    shutil.copy(keyrange.__file__, tmp_path / "keyrange")
    program = "import sys, keyrange; print(keyrange.__version__, 'email' in sys.modules)"

    def told(installed: str) -> str:
        place = tmp_path / f"keyrange-{installed}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Name: keyrange\nVersion: {installed}\n")
        command = [sys.executable, "-c", program]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return ended.stdout

    assert told("7.1.0+a") == "7.1.0+a False\n"
    assert told("7.0") in ("7.1.0+a True\n", "7.0 True\n")
