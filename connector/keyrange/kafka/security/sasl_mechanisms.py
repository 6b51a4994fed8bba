"""What each SASL mechanism needs, looked up when a connection is made.

kafka-python's clients compute and check the proofs. References to secrets are resolved here, in the
process that connects, and what they hold is not kept. Packages that only one mechanism needs are
asked for by name.
"""

from __future__ import annotations

import importlib
from typing import Any

from keyrange.errors import error
from keyrange.kafka.messages import sasl_clients
from keyrange.kafka.security import kerberos, tokens
from keyrange.options.allowlist import NotAllowed, not_allowed
from keyrange.options.jaas import read_login
from keyrange.options.kafka_properties import ClientSettings
from keyrange.text.packages import install_line


def new_client(settings: ClientSettings, host: str) -> tuple[Any, str]:
    """The client side of the mechanism (auth_bytes, receive, is_done), and who logs in.

    Raises SECRET_NOT_FOUND, PACKAGE_NOT_FOUND, INVALID_OPTIONS for a JAAS configuration that was
    referred to and does not fit, and what `kerberos.new_client` and `tokens.token` raise.
    """
    try:
        login = {name: value.reveal() for name, value in read_login(settings).items()}
    except NotAllowed as failure:
        raise not_allowed("kafka.sasl.jaas.config", failure) from None
    except ValueError as failure:
        raise error("INVALID_OPTIONS", f"option 'kafka.sasl.jaas.config' {failure}") from None
    config: dict[str, Any] = {"host": host, "security_protocol": settings.security_protocol}
    mechanism = settings.sasl_mechanism
    if mechanism == "OAUTHBEARER":
        token, extensions = tokens.token(settings, login), tokens.extensions(login)
        config["sasl_oauth_token_provider"] = sasl_clients.TokenProvider(token, extensions)
        user = login.get("clientId", "")
    elif mechanism == "GSSAPI":
        _require("gssapi", mechanism, "kerberos")
        config |= {
            "sasl_kerberos_service_name": login["serviceName"],
            "principal": login.get("principal", ""),
        }
        return kerberos.new_client(login, host, config), login.get("principal", "")
    elif mechanism == "AWS_MSK_IAM":
        _require("botocore", mechanism, "msk")
        user = config["profile"] = login.get("awsProfileName", "")
    else:
        config["sasl_plain_username"] = user = login["username"]
        config["sasl_plain_password"] = login["password"]
    return sasl_clients.new_client(mechanism, config), user


def why_refused(mechanism: str, user: str) -> str:
    """What to add to a broker's refusal, which tells no reason; "" where nothing is known of it."""
    if mechanism == "GSSAPI":
        return kerberos.refused()
    if mechanism.startswith("SCRAM") and not user.isascii():
        return "Kafka's brokers take the user names of SCRAM in ASCII only"
    return ""


def _require(package: str, mechanism: str, extra: str) -> None:
    try:
        importlib.import_module(package)
    except (ImportError, OSError) as failure:
        raise error(
            "PACKAGE_NOT_FOUND",
            f"{mechanism} needs the Python package {package} ({install_line(extra)}): {failure}",
        ) from None
