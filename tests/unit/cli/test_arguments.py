"""`--option NAME=VALUE`: values from the command line and from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.commanding import run
from keyrange.cli.arguments import named_values
from keyrange.errors import InvalidError


def test_values_are_taken_as_they_are_or_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pass=wörd @x\n", encoding="utf-8")
    assert named_values(["a=1", "b=x=y", "c=", f"d=@{tmp_path / 'secret'}", "a=2"]) == {
        "a": "2",
        "b": "x=y",
        "c": "",
        "d": "pass=wörd @x",
    }


def test_all_that_cannot_be_taken_is_named_and_no_value_is_shown(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xffhidden")
    given = ["alone", "=hidden", "f=@hidden", f"g=@{tmp_path / 'bytes'}", "h=hidden", "i:hidden"]
    given.append("j=@\0hidden")
    with pytest.raises(InvalidError) as caught:
        named_values(given)
    text = caught.value.message
    assert caught.value.condition.name == "INVALID_OPTIONS"
    assert "--option takes NAME=VALUE, not 'alone'" in text
    assert "--option takes NAME=VALUE, not '='" in text
    assert "--option takes NAME=VALUE, not 'i...'" in text
    said = "the value begins with @ and so names a file, which cannot be read"
    assert f"--option f: {said}: No such file or directory" in text
    assert f"--option g: {said}: it is not UTF-8 text" in text
    assert f"--option j: {said}: it has no such name" in text
    assert "hidden" not in text


COMMANDS = (
    "commits show T",
    "commits gaps T",
    "commits history T",
    "commits verify T",
    "commits reset T --topic t --to earliest --why w",
    "deadletters list T",
    "deadletters show T t-0:0",
    "deadletters replay T --all",
    "members list T",
    "members history T",
    "members rebalance T --why w",
    "members remove T orders-0 --why w",
    "ranges owner --key a --partitions 2 --ranges 2",
    "ranges plan --topic t --bootstrap-servers h:1",
    "records --key a --topic t --bootstrap-servers h:1",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_the_source_does_not_have_is_refused(command: str) -> None:
    """Also where a command makes use of none of them, or would have to ask a broker for it."""
    given = ["--option", "startingOfsets=earliest", "--option", "kafka.clientid=x"]
    result = run(*command.split(), *given)
    said = str(result.exception)
    assert "[INVALID_OPTIONS] option 'startingOfsets' does not exist (did you mean" in said
    assert "option 'kafka.clientid' is not a property of Kafka's consumer (did you mean" in said
    assert (result.exit_code, result.stdout) == (1, "")


def test_settings_of_an_object_store_are_options_of_the_source() -> None:
    given = ["--option", "objectStore.aws_region=x", "--option", "KAFKA.client.id=x"]
    result = run("commits", "show", "/nowhere/commits", *given)
    assert "[NO_COMMIT_TABLE] there is no commit table at /nowhere/commits" in str(result.exception)
