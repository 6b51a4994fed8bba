"""Answers of a registry, whatever is in them, and the order of what a schema refers to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.registry.registered_schemas import (
    Reference,
    SchemaDocument,
    read_document,
    with_references,
)

NAMES = ("a", "b", "c", "d", "e")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
references = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("name", "subject", "version"), json_values)
)
answers = st.fixed_dictionaries(
    {},
    optional={
        "schema": st.text(max_size=3) | json_values,
        "schemaType": st.sampled_from(["AVRO", "JSON", ""]) | json_values,
        "id": st.integers() | json_values,
        "references": st.lists(references | json_values, max_size=3) | json_values,
        "other": json_values,
    },
)


@given(answers)
def test_an_answer_is_a_document_or_named_as_none(answer: dict[str, Any]) -> None:
    try:
        found = read_document(answer)
    except ValueError:
        return
    assert isinstance(found.text, str)
    assert isinstance(found.type, str)
    assert found.type
    assert all(isinstance(each, Reference) for each in found.references)


@given(
    st.dictionaries(
        st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=4), min_size=5
    ),
    st.lists(st.sampled_from(NAMES), max_size=5),
)
def test_texts_stand_behind_what_they_use(uses: dict[str, list[str]], top: list[str]) -> None:
    """As a walk that calls itself has it; also where schemas use one another in a circle."""
    documents = {
        name: SchemaDocument(None, "AVRO", f"text of {name}", refer(used))
        for name, used in uses.items()
    }
    asked: list[str] = []

    def fetch(reference: Reference) -> SchemaDocument:
        asked.append(reference.name)
        return documents[reference.name]

    found = with_references(SchemaDocument(None, "AVRO", "top", refer(top)), fetch)
    wanted: list[str] = []

    def walk(names: list[str], met: set[str]) -> None:
        for name in names:
            if name not in met:
                met.add(name)
                walk(uses[name], met)
                wanted.append(name)

    walk(top, set())
    assert found.references == tuple((name, f"text of {name}") for name in wanted)
    assert sorted(asked) == sorted(wanted)


def refer(names: list[str]) -> tuple[Reference, ...]:
    return tuple(Reference(name, f"subject of {name}", 1) for name in names)


def test_references_without_an_end() -> None:
    def fetch(reference: Reference) -> SchemaDocument:
        return SchemaDocument(None, "AVRO", "", refer([f"{reference.name}x"]))

    with pytest.raises(ValueError, match="more than 1000 schemas"):
        with_references(SchemaDocument(None, "AVRO", "", refer(["x"])), fetch)
