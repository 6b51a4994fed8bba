"""The rows of the catalogue about schema registries."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Rows

_rows = Rows()

REGISTRY_CONDITIONS: Final = (
    _rows.unavailable(
        "REGISTRY_UNREACHABLE",
        "check schemaRegistry.url, the registry and the network, from the driver's host and from "
        "an executor's; a registry that needs longer is waited for with "
        "schemaRegistry.requestTimeout and schemaRegistry.tries",
        "No address of the schema registry answered in time, or each answered that it cannot now. "
        "No record was taken for a bad one: the task fails, and Spark runs it again.",
        "the addresses and the last reason in the message, and the registry's log",
    ),
    _rows.corrupt(
        "REGISTRY_ANSWER_UNFIT",
        "name the address below which the registry's REST API begins in schemaRegistry.url "
        "(Apicurio's is /apis/ccompat/v7), and no web console or proxy",
        "What answered at the registry's address does not answer as Confluent's registry does: "
        "with a redirect, a status without the registry's error code, or with no JSON of a schema. "
        "No record was taken for a bad one.",
        "the address in the message, asked by hand: `curl URL/subjects`",
    ),
    _rows.denied(
        "REGISTRY_DENIED",
        "check schemaRegistry.user and schemaRegistry.password, or schemaRegistry.token, and the "
        "rights of that login on the subject",
        "The registry answered that the login is wrong or has no right to read the schema, or to "
        "register one.",
        "the HTTP status in the message, and the registry's log",
        guide="security.md",
    ),
    _rows.denied(
        "REGISTRY_TLS_FAILED",
        "check schemaRegistry.ssl.* against the registry's certificate and its authority, and "
        "https or http in schemaRegistry.url against what listens there",
        "The registry was reached, and TLS could not be agreed on.",
        "the certificate's text in the message",
        guide="security.md",
    ),
    _rows.invalid(
        "REGISTRY_SUBJECT_UNKNOWN",
        "correct the topic's name, if it is misspelled: the subject is named after it; or name "
        "the subject in valueSubject (of keys keySubject) as `curl URL/subjects` lists it, or "
        "register its schema first",
        "The registry has no such subject, or no version of it. By default it is the topic's name "
        "with -value or -key, as Confluent's serializers name it. Nothing was read or written.",
        "the subject in the message; serializers with another naming strategy name it otherwise",
    ),
    _rows.invalid(
        "REGISTRY_SCHEMA_UNFIT",
        "name the format that the schema is of in valueFormat (of keys keyFormat), or another "
        "subject",
        "The subject's latest schema is of another type than the format, or uses a schema that "
        "the registry has no more. Nothing was read or written.",
        "subject, version and type in the message",
    ),
    _rows.invalid(
        "REGISTRY_SCHEMA_UNKNOWN",
        "register the schema under the subject, or let keyrange do it with "
        "schemaRegistry.autoRegister=true of the topic; without value_schema rows are written by "
        "the subject's latest schema",
        "The subject has no such schema as value_schema (of keys key_schema), and keyrange "
        "registers none unless it is told to. Nothing was written.",
        "the subject in the message: `curl URL/subjects/SUBJECT/versions/latest`",
        guide="topics.md",
    ),
    _rows.invalid(
        "REGISTRY_SCHEMA_REFUSED",
        "change the schema as the registry's text in the message says, for example give new fields "
        "a default; or set another compatibility for the subject",
        "The registry does not register the schema: it is not compatible with the versions that "
        "the subject has, or it is no valid schema. Nothing was written.",
        "the registry's text in the message: `curl URL/config/SUBJECT` says what is compatible",
        guide="topics.md",
    ),
)
