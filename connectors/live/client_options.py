"""How a cluster is reached and how much is requested: known without a client library."""

from __future__ import annotations

from auditor.base.errors import MIB

CONNECTION_OPTIONS = (
    "security_protocol",
    "ssl_check_hostname",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_crlfile",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "request_timeout_ms",
    "client_id",
    "api_version",
    "proxy_url",
)
MAX_BYTES, MAX_RATE = 1024 * MIB, 16 * MIB  # that are read of a cluster in all, and a second, where nobody says
