"""The certificates of a cluster: of its API server, and of everyone who asks it for anything."""

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=30)

# The API by which a client takes a login from a command.
_LOGIN = "client.authentication.k8s.io/v1"

_CERTIFICATE, _KEY, _SERVER = "ca.crt", "ca.key", "server"


@dataclass(frozen=True)
class Authority:
    """A certificate authority that the API server trusts; files of it are in `folder`.

    Attributes:
        folder: where certificates and kubeconfigs are written, all of them for the owner only.
        server: URL of the API server.
    """

    folder: Path
    server: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.folder / _CERTIFICATE

    def serving(self, name: str, addresses: Sequence[str]) -> tuple[Path, Path]:
        """A server's certificate for names and IP addresses, and its key."""
        names = x509.SubjectAlternativeName([_general_name(one) for one in addresses])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        return self._issue(name, _subject(name, ()), [names, usage])

    def client(self, user: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
        """A user's certificate, and its key. The API server reads the groups from it."""
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return self._issue(user.replace(":", "-"), _subject(user, groups), [usage])

    def kubeconfig(self, user: str, groups: Sequence[str] = (), namespace: str = "default") -> Path:
        """A kubeconfig with which a program is that user; its context is named as the user."""
        certificate, key = self.client(user, groups)
        credentials = {"client-certificate-data": _text(certificate), "client-key-data": _text(key)}
        return self._kubeconfig(
            certificate.with_suffix(".kubeconfig"), user, credentials, namespace
        )

    def kubeconfig_of_token(self, name: str, token: str, namespace: str) -> Path:
        """A kubeconfig whose login is a command that gives a token, as those of clouds are."""
        given = {"apiVersion": _LOGIN, "kind": "ExecCredential", "status": {"token": token}}
        file = _write(self.folder / f"{namespace}-{name}.json", json.dumps(given).encode())
        command = {"apiVersion": _LOGIN, "command": "cat", "args": [str(file)]}
        login = {"exec": {**command, "interactiveMode": "Never"}}
        return self._kubeconfig(file.with_suffix(".kubeconfig"), name, login, namespace)

    def _kubeconfig(
        self, file: Path, user: str, credentials: dict[str, Any], namespace: str
    ) -> Path:
        cluster = {"server": self.server, "certificate-authority-data": _text(self.ca)}
        context = {"cluster": "sunspot", "user": user, "namespace": namespace}
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sunspot", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": user, "context": context}],
            "current-context": user,
        }
        return _write(file, json.dumps(made, indent=2).encode())

    def _issue(
        self, file: str, subject: x509.Name, extensions: Sequence[x509.ExtensionType]
    ) -> tuple[Path, Path]:
        own = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(subject, own.public_key(), self.certificate.subject)
        for extension in extensions:
            made = made.add_extension(extension, critical=False)
        signed = made.sign(self.key, hashes.SHA256())
        return (
            _write(self.folder / f"{file}.crt", signed.public_bytes(serialization.Encoding.PEM)),
            _write(self.folder / f"{file}.key", _pem(own)),
        )


def authority(folder: Path, server: str) -> Authority:
    """A new authority, in a folder that is made for it."""
    folder.mkdir(mode=0o700)
    (folder / _SERVER).write_text(server)
    own = ec.generate_private_key(ec.SECP256R1())
    name = _subject("sunspot", ())
    certificate = (
        _certificate(name, own.public_key(), name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(own, hashes.SHA256())
    )
    _write(folder / _KEY, _pem(own))
    _write(folder / _CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))
    return read(folder)


def read(folder: Path) -> Authority:
    """The authority that was made in that folder."""
    key = serialization.load_pem_private_key((folder / _KEY).read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate((folder / _CERTIFICATE).read_bytes())
    return Authority(folder, (folder / _SERVER).read_text(), key, certificate)


def signing_key(path: Path) -> Path:
    """A new key, such as that of the service accounts' tokens."""
    return _write(path, _pem(ec.generate_private_key(ec.SECP256R1())))


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + VALID)
    )


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _text(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _write(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path
