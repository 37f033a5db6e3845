"""Users of the config: hashes of their passwords, of whatever kind; password files; tokens of the admin API."""

from headway.server.config.auth.hashes import PASSWORD_BYTES_MAX, check_hash, hash_password, verify_password
from headway.server.config.auth.password_file import read_password_file
from headway.server.config.auth.saslprep import saslprep
from headway.server.config.auth.scram import ScramKeys
from headway.server.config.auth.tokens import check_digest, digest_of, new_token
from headway.server.config.auth.users import Users

__all__ = [
    "check_digest", "check_hash", "digest_of", "hash_password", "new_token", "PASSWORD_BYTES_MAX", "read_password_file",
    "saslprep", "ScramKeys", "Users", "verify_password",
]  # fmt: skip
