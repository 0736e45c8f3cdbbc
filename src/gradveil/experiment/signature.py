"""An ed25519 signature over the id of a run's seal, with a key of the user's (the extra `sign`).

What is signed are the bytes `gradveil seal ID`, so that a signature means nothing elsewhere. `signature.json` lies
beside the seal and is no part of it. Keys are PEM (`openssl genpkey -algorithm ed25519`) or OpenSSH
(`ssh-keygen -t ed25519`), without a passphrase.
"""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradveil.core.errors import ConfigError
from gradveil.experiment.seal import SIGNATURE, Seal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SCHEMA = 1
LARGEST_KEY = 1 << 16  # bytes


def sign(folder: Path, seal: Seal, key: Path) -> str:
    """Write `signature.json` over the seal of a run, and return the fingerprint of the key."""
    from gradveil.core.files import private_files, write_whole
    from gradveil.experiment.provenance import now

    private = _private_key(key)
    public = private.public_key()
    content = {
        "schema": SCHEMA,
        "id": seal.id,
        "signed": now(),
        "key": _openssh(public),
        "signature": private.sign(_message(seal.id)).hex(),
    }
    with private_files():
        write_whole(folder / SIGNATURE, (json.dumps(content, indent=2) + "\n").encode())
    return fingerprint(public)


def check_signature(folder: Path, seal: Seal, key: Path) -> str:
    """The fingerprint of the key, if the seal was signed with it; ConfigError if it was not."""
    public, stored = _public_key(key), _read(folder)
    from cryptography.exceptions import InvalidSignature  # after the key: then the package is there

    mine, theirs = _openssh(public), str(stored.get("key"))
    if mine != theirs:
        raise ConfigError(f"{folder / SIGNATURE}: signed with another key, give that one or sign the run again")
    if stored.get("id") != seal.id:
        raise ConfigError(f"{folder / SIGNATURE}: the run was sealed again since it was signed, treat it as edited")
    try:
        public.verify(bytes.fromhex(str(stored.get("signature"))), _message(seal.id))
    except (InvalidSignature, ValueError) as error:
        raise ConfigError(f"{folder / SIGNATURE}: not the signature of this run, sign it again") from error
    return fingerprint(public)


def fingerprint(public: Ed25519PublicKey) -> str:
    """As `ssh-keygen -l` prints it."""
    blob = base64.b64decode(_openssh(public).split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _message(id: str) -> bytes:
    return f"gradveil seal {id}".encode()


def _openssh(public: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _read(folder: Path) -> dict[str, Any]:
    path = folder / SIGNATURE
    if not path.is_file() or path.is_symlink():
        raise ConfigError(f"{path}: not there, the run is not signed, `gradveil sign` signs it")
    try:
        stored = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read, sign the run again") from error
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
        raise ConfigError(f"{path}: not a signature of this version, sign the run again")
    return stored


def _private_key(path: Path) -> Ed25519PrivateKey:
    found = _load(path)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not isinstance(found, Ed25519PrivateKey):
        raise ConfigError(f"{path} is a public key, give the private one to sign", key="key")
    return found


def _public_key(path: Path) -> Ed25519PublicKey:
    found = _load(path)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return found.public_key() if isinstance(found, Ed25519PrivateKey) else found


def _load(path: Path) -> Ed25519PrivateKey | Ed25519PublicKey:
    """A key in any of the four forms."""
    content = _key_file(path)
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    try:
        found = _parse(content)
    except TypeError as error:  # says cryptography of a key with a passphrase
        raise ConfigError(f"{path} has a passphrase, give a key without one", key="key") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: not a key in PEM or OpenSSH form, give an ed25519 key", key="key") from error
    if not isinstance(found, Ed25519PrivateKey | Ed25519PublicKey):
        raise ConfigError(f"{path}: {type(found).__name__.strip('_')} is not ed25519, give an ed25519 key", key="key")
    return found


def _parse(content: bytes) -> object:
    from cryptography.hazmat.primitives import serialization

    if b"BEGIN OPENSSH PRIVATE KEY" in content:
        return serialization.load_ssh_private_key(content, None)
    if b"PRIVATE KEY" in content:
        return serialization.load_pem_private_key(content, None)
    if b"BEGIN" in content:
        return serialization.load_pem_public_key(content)
    return serialization.load_ssh_public_key(content)


def _key_file(path: Path) -> bytes:
    """Its bytes; the package is looked for first, so that the error names what is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise ConfigError("needs cryptography, `pip install 'gradveil[sign]'`", key="key") from error
    try:
        if not stat.S_ISREG(path.stat().st_mode) or path.stat().st_size > LARGEST_KEY:
            raise ConfigError(f"{path}: not the file of a key", key="key")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read, {error.strerror}", key="key") from error
