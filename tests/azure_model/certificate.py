"""A certificate for the services of Azure that are asked by TLS."""

import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

EC, RSA = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"), ("rsa:2048",)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A certificate that is its own authority."""

    file: Path
    key: Path

    @classmethod
    def create(cls, folder: Path, names: Sequence[str], key: Sequence[str] = EC) -> Self:
        """A certificate for these host names, valid for two days; needs openssl.

        Args:
            folder: where its files go.
            names: the host names.
            key: openssl's words for what key it has.
        """
        made = cls(file=folder / "certificate.pem", key=folder / "certificate.key")
        alternatives = ",".join(f"DNS:{name}" for name in names)
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", *key),
                *("-nodes", "-days", "2", "-subj", "/CN=test"),
                *("-addext", f"subjectAltName={alternatives}"),
                *("-keyout", str(made.key), "-out", str(made.file)),
            ],
            check=True,
            capture_output=True,
        )
        return made

    def context(self) -> ssl.SSLContext:
        """What a server needs to show it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context
