"""Certificates for servers of tests, by an authority of their own."""

from __future__ import annotations

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def signed_certificate(folder, name, address):
    """A certificate of an authority, and by it one for an address or a host; the files of both, and
    of the key.
    """
    now = dt.datetime.now(dt.UTC)

    def made(subject, issuer, key, signing, *extensions):
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(signing, hashes.SHA256())

    def named(text):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    authority, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    signer = made(
        named("authority"),
        named("authority"),
        authority,
        authority,
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (usage, True),
        (x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), False),
    )
    try:
        held = x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        held = x509.DNSName(address)
    alternative = x509.SubjectAlternativeName([held])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    server = made(named(name), named("authority"), server_key, authority, (alternative, False), (issuer, False))
    files = folder / f"{name}-ca.pem", folder / f"{name}.pem", folder / f"{name}-key.pem"
    files[0].write_bytes(signer.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(server.public_bytes(serialization.Encoding.PEM))
    files[2].write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files
