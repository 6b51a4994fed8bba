"""`kafka.sasl.jaas.config`: one entry of Java's login configuration, and what becomes of it.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";

Every option of a known module is used, ignored or refused by name. Errors never repeat values, nor
names that are not known: with a misplaced quote those may be parts of a password.

`read_login` says what logs in: the entry with the properties over it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from keyrange.options.allowlist import check_path
from keyrange.options.secrets import NO_SECRET, Secret, parse_secret
from keyrange.options.security_properties import SecuritySettings


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: the mechanisms it serves, and its options. `prefixes` begin used ones."""

    class_name: str
    mechanisms: tuple[str, ...]
    used: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()

    @property
    def short_name(self) -> str:
        return self.class_name.rpartition(".")[2]


_ROLE: Final = (
    "write the role into a profile of the AWS configuration (role_arn with source_profile or "
    "credential_source) and name that with awsProfileName"
)

_MODULES: Final = (
    LoginModule(
        "org.apache.kafka.common.security.plain.PlainLoginModule",
        ("PLAIN",),
        ("username", "password"),
    ),
    LoginModule(
        "org.apache.kafka.common.security.scram.ScramLoginModule",
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        ("username", "password"),
        refused={"tokenauth": "log in with user and password, not with a delegation token"},
    ),
    LoginModule(
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        ("OAUTHBEARER",),
        (
            "clientId",
            "clientSecret",
            "scope",
            "ssl.truststore.location",
            "ssl.truststore.type",
            "ssl.truststore.password",
            "ssl.truststore.certificates",
            "unsecuredLoginPrincipalClaimName",
            "unsecuredLoginScopeClaimName",
            "unsecuredLoginLifetimeSeconds",
        ),
        refused={
            "ssl.keystore.location": "the token endpoint is asked with clientId and clientSecret",
            "oauth.client.id": "write clientId, as Kafka's own OAuthBearerLoginModule has it",
            "oauth.client.secret": "write clientSecret, as Kafka's own module has it",
            "oauth.token.endpoint.uri": "write kafka.sasl.oauthbearer.token.endpoint.url",
        },
        prefixes=(
            "extension_",
            "unsecuredLoginStringClaim_",
            "unsecuredLoginNumberClaim_",
            "unsecuredLoginListClaim_",
            "unsecuredLoginExtension_",
        ),
    ),
    LoginModule(
        "com.sun.security.auth.module.Krb5LoginModule",
        ("GSSAPI",),
        ("serviceName", "principal", "keyTab", "useKeyTab", "useTicketCache", "ticketCache"),
        ignored=(
            "clearPass",
            "debug",
            "doNotPrompt",
            "isInitiator",
            "refreshKrb5Config",
            "renewTGT",
            "storeKey",
            "storePass",
            "tryFirstPass",
            "useFirstPass",
        ),
    ),
    LoginModule(
        "software.amazon.msk.auth.iam.IAMLoginModule",
        ("AWS_MSK_IAM",),
        ("awsProfileName",),
        ignored=("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"),
        refused={
            "awsRoleArn": _ROLE,
            "awsRoleSessionName": _ROLE,
            "awsRoleExternalId": _ROLE,
            "awsRoleAccessKeyId": _ROLE,
            "awsRoleSecretAccessKey": _ROLE,
            "awsRoleSessionToken": _ROLE,
            "awsStsRegion": _ROLE,
        },
    ),
)

# Of the options of all modules, those that name a path of the process that connects.
PATHS: Final = frozenset(("keyTab", "ticketCache", "ssl.truststore.location"))

_ENTRY = re.compile(r"\s*(?P<name>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.I)
_OPTION = re.compile(
    r"""([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"'=]+))(?=[\s;]|$)"""
)


def parse_jaas(text: str) -> tuple[LoginModule, dict[str, Secret]]:
    """The module and its used options; each value may be a reference of its own.

    ValueError that begins with "must" and repeats no value.
    """
    entry = _ENTRY.match(text)
    module = _module(entry["name"]) if entry else None
    if entry is None or module is None:
        known = ", ".join(each.class_name for each in _MODULES)
        raise ValueError(
            f'must be an entry MODULE required name="value" ...; MODULE one of {known}'
        )
    rest = text[entry.end() :]
    if _OPTION.sub("", rest).strip() not in ("", ";"):
        raise ValueError(
            f'must hold the options of {module.short_name} as name="value", one entry that ends '
            "with a semicolon; quotes and backslashes in a value are escaped by a backslash"
        )
    options = {}
    for name, double, single, bare in _OPTION.findall(rest):
        value = re.sub(r"\\(.)", r"\1", double or single) or bare
        if name == "tokenauth" and value == "false":
            continue
        if name in module.refused:
            raise ValueError(
                f"must be without {module.short_name}'s option {name}: {module.refused[name]}"
            )
        if name in module.used or name.startswith(module.prefixes):
            options[name] = parse_secret(value)
            if name in PATHS and not options[name].is_reference:
                check_path(file_of(options[name].reveal()))
        elif name not in module.ignored:
            takes = ", ".join(sorted(module.used) + [f"{each}..." for each in module.prefixes])
            raise ValueError(f"must hold options of {module.short_name} only: {takes}")
    return module, options


def file_of(store: str) -> str:
    """The path of a key tab or ticket cache; what is none of a file stays as it is."""
    kind, _, path = store.partition(":")
    return path if kind in ("FILE", "DIR", "WRFILE") else store


def _module(class_name: str) -> LoginModule | None:
    """By its full name, which a platform may have shaded: kafkashaded.org.apache.kafka..."""
    for module in _MODULES:
        if f".{class_name}".endswith(f".{module.class_name}"):
            return module
    return None


def read_login(settings: SecuritySettings, prefix: str = "kafka.") -> dict[str, Secret]:
    """All that logs in, by the names of JAAS: the entry's options, and the properties over them.

    Looks up a JAAS configuration that is a reference. Raises SECRET_NOT_FOUND for that; ValueError
    that begins with "must" and holds no value, where something is missing or does not fit.
    """
    module, login = None, dict[str, Secret]()
    if settings.sasl_jaas:
        module, login = parse_jaas(settings.sasl_jaas.reveal())
    if not settings.security_protocol.startswith("SASL"):
        return login
    mechanism = settings.sasl_mechanism
    if module and mechanism not in module.mechanisms:
        raise ValueError(
            f"must hold a login module for {mechanism}, which {prefix}sasl.mechanism is (by "
            f"default GSSAPI); {module.short_name} is for {' and '.join(module.mechanisms)}"
        )
    service = settings.kerberos_service_name
    if service and "serviceName" in login and login["serviceName"].reveal() != service:
        raise ValueError(f"must have the serviceName that {prefix}sasl.kerberos.service.name has")
    properties = {
        "username": settings.sasl_username,
        "password": settings.sasl_password,
        "clientId": settings.oauth_client_id,
        "clientSecret": settings.oauth_client_secret,
        "scope": _literal(settings.oauth_scope),
        "serviceName": _literal(service),
    }
    login |= {name: value for name, value in properties.items() if value}
    _check_login(settings, login, prefix)
    return login


def _literal(value: str) -> Secret:
    return Secret(f"literal:{value}") if value else NO_SECRET


def _check_login(settings: SecuritySettings, login: Mapping[str, Secret], prefix: str) -> None:
    """What each mechanism cannot do without."""
    mechanism = settings.sasl_mechanism
    given = {name for name, value in login.items() if value}
    if mechanism == "GSSAPI" and "serviceName" not in given:
        raise ValueError(
            "must hold serviceName for mechanism GSSAPI (Java's default), or "
            f"{prefix}sasl.kerberos.service.name be given"
        )
    if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") and not (
        {"username", "password"} <= given
    ):
        raise ValueError(
            f"must hold username and password for {mechanism}, or {prefix}sasl.username and "
            f"{prefix}sasl.password be given"
        )
    if mechanism == "AWS_MSK_IAM" and settings.security_protocol != "SASL_SSL":
        raise ValueError(f"must be used with {prefix}security.protocol SASL_SSL for AWS_MSK_IAM")
    if mechanism == "OAUTHBEARER":
        url = settings.oauth_token_endpoint_url
        unsecured = any(name.startswith("unsecuredLogin") for name in given)
        if bool(url) == unsecured:
            raise ValueError(
                f"must go with {prefix}sasl.oauthbearer.token.endpoint.url, or hold "
                "unsecuredLoginStringClaim_sub for an unsecured token, and not both"
            )
        if url and not url.startswith("file:") and not {"clientId", "clientSecret"} <= given:
            raise ValueError("must hold clientId and clientSecret for the token endpoint")
