"""The config file, and the broker that it describes."""

from headway.server.config import host_limits
from headway.server.config.auth import (
    PASSWORD_BYTES_MAX,
    ScramKeys,
    Users,
    digest_of,
    hash_password,
    new_token,
    read_password_file,
    saslprep,
)
from headway.server.config.auth.tables import AuthTable, HookTable, JwtTable
from headway.server.config.description import describe, describe_permissions, remarks
from headway.server.config.fields import Keep, Url, same_address
from headway.server.config.linting import lint, uncovered_finding, writable
from headway.server.config.presets import PRESETS, preset_text
from headway.server.config.reading import TOPIC_POOLS_MAX, default_text, load_settings, make_broker, parse_settings
from headway.server.config.settings import (
    ASGI_LISTENER,
    PROGRAM_LISTENER,
    HistorySettings,
    JournalTable,
    ListenerTable,
    RetainedTable,
    Settings,
    SourceTable,
    TelemetryTable,
    TopicTable,
    TracesTable,
    ViewTable,
    recording_text,
    tables_of,
)
from headway.server.config.tls import TlsContext, TlsTable, load_tls
from headway.server.config.tls.files import (
    ADMIN_TLS,
    bad_certificates,
    doubtful_certificates,
    load_all_tls,
    tls_of,
    with_tls_of,
)
from headway.server.config.tls.users import users_are_elsewhere

__all__ = [
    "ADMIN_TLS", "ASGI_LISTENER", "AuthTable", "bad_certificates", "default_text", "describe", "describe_permissions",
    "digest_of", "doubtful_certificates", "hash_password", "HistorySettings", "HookTable", "host_limits",
    "JournalTable", "JwtTable", "Keep",
    "lint", "ListenerTable", "load_all_tls", "load_settings", "load_tls", "make_broker", "new_token",
    "parse_settings", "PASSWORD_BYTES_MAX", "preset_text", "PRESETS", "PROGRAM_LISTENER", "recording_text",
    "read_password_file", "remarks", "RetainedTable", "same_address", "Settings", "SourceTable", "tables_of",
    "saslprep", "ScramKeys", "TelemetryTable", "tls_of", "TlsContext", "TlsTable", "TOPIC_POOLS_MAX", "TopicTable",
    "TracesTable", "uncovered_finding", "Url", "Users", "users_are_elsewhere", "ViewTable", "with_tls_of", "writable",
]
