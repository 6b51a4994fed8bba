"""What logs in: the entry of JAAS with the properties over it, and what each mechanism needs."""

from __future__ import annotations

from collections.abc import Mapping

from keyrange.options.jaas import parse_jaas
from keyrange.options.secrets import NO_SECRET, Secret
from keyrange.options.security_properties import SecuritySettings


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
