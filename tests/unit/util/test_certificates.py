"""Why a server's certificate does not hold is said by all clients in the same words; not all is the authority's."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lab.certificates import named, unsigned
from tests.unit.targets.lxd.lxd_files import written
from tippingpoint.errors import TargetError
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.plan.claim import ClaimWorkload
from tippingpoint.targets.etcd.access import Scope
from tippingpoint.targets.etcd.claim import connect
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.juju.api.stream import why
from tippingpoint.util.certificates import certificate_fault
from tippingpoint.util.rest import broken

DAY = datetime.timedelta(days=1)
WORDS = {
    "expired": "the server's certificate has expired",
    "early": "the server's certificate is not valid yet",
    "name": "the server's certificate is for another name: Hostname mismatch, certificate is not valid for 'localhost'",
    "authority": "the server's certificate is not signed by a trusted authority: unable to get local issuer",
}


def made(directory: Path, kind: str) -> tuple[Path, Path, Path]:
    """The files of an authority that is trusted, of a server's certificate that has this fault, and of its key."""
    now = datetime.datetime.now(datetime.UTC)
    key, own, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))

    def authority(signer: ec.EllipticCurvePrivateKey, name: str) -> str:
        basic = x509.BasicConstraints(ca=True, path_length=0)
        whole = unsigned(named(name), named(name), signer, now + DAY).add_extension(basic, critical=True)
        return whole.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    begins = {"expired": now - 3 * DAY, "early": now + DAY}.get(kind, now - DAY)
    host = "elsewhere" if kind == "name" else "localhost"
    signer, name = (other, "another") if kind == "authority" else (own, "ours")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(named("server"))
        .issuer_name(named(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + 2 * DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (
        written(directory / "ca.pem", authority(own, "ours")),
        written(directory / "server.pem", certificate.public_bytes(serialization.Encoding.PEM).decode()),
        written(directory / "key.pem", private.decode()),
    )


@asynccontextmanager
async def serving(certificate: Path, key: Path) -> AsyncGenerator[int]:
    """A server that shows it; the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(never, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def etcd(api: str, port: int, ca: Path) -> str:
    target = EtcdTarget.model_validate({"endpoints": [f"https://localhost:{port}"], "ca": ca, "api": api})
    claims = connect(target, ClaimWorkload(), Scope("/tippingpoint/x/", 1 << 40))
    try:
        with pytest.raises(TargetError) as refused:
            await claims.open()
    finally:
        await claims.close()
    return str(refused.value)


async def prometheus(port: int, ca: Path) -> str:
    async with Prometheus(f"https://localhost:{port}", ca=ca) as asked:
        with pytest.raises(TargetError) as refused:
            await asked.version()
    return str(refused.value)


async def rest(port: int, ca: Path) -> str:
    """As LXD and OpenStack are asked."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca))
    async with aiohttp.ClientSession(connector=connector) as session:
        with pytest.raises(aiohttp.ClientError) as refused:
            await session.get(f"https://localhost:{port}")
    words, trouble = broken("there", refused.value)
    assert trouble == "trust"
    return words


async def juju(port: int, ca: Path) -> str:
    with pytest.raises(ssl.SSLCertVerificationError) as refused:
        await asyncio.open_connection("localhost", port, ssl=ssl.create_default_context(cafile=ca))
    assert certificate_fault(refused.value).accepted in WHAT_HOLDS
    return why(refused.value)


WHAT_HOLDS = {
    "a renewed certificate",
    "a certificate that is valid now, and a correct clock on this machine",
    "a name in the server's certificate",
    "the authority that signed the server's certificate",
}


@pytest.mark.parametrize(
    "client",
    [
        lambda port, ca: etcd("v2", port, ca),
        lambda port, ca: etcd("v3", port, ca),
        prometheus,
        rest,
        juju,
    ],
    ids=["etcd v2", "etcd v3", "prometheus", "rest", "juju"],
)
@pytest.mark.parametrize("kind", [*WORDS])
async def test_what_is_wrong_with_a_certificate_is_told_apart(
    kind: str, client: Callable[[int, Path], Awaitable[str]], tmp_path: Path
) -> None:
    ca, certificate, key = made(tmp_path, kind)
    async with serving(certificate, key) as port:
        line = await client(port, ca)
    assert WORDS[kind] in line
    assert ("authority" in line) == (kind == "authority")
    assert "\n" not in line
