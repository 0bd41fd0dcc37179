"""Stores that Java's own keytool made: PKCS12 is read, JKS and JCEKS once the named command has converted them."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from auditor.base.errors import AuditInputError
from auditor.connectors.live import client_properties
from auditor.connectors.live.client_properties import connection
from tests import keytool

PASSWORD, OF_KEY = "store-pass", "key-pass-1"
pytestmark = pytest.mark.skipif(shutil.which("keytool") is None, reason="no keytool on PATH")


@pytest.fixture(scope="module", params=["JKS", "JCEKS", "PKCS12"])
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """key: a private key (a store of Java's own hides it by a password of its own); trust: its certificate."""
    folder = tmp_path_factory.mktemp(request.param) / "of my client"
    folder.mkdir()
    kind = ["-storetype", request.param]
    own = ["-keypass", OF_KEY] if request.param != "PKCS12" else []

    def run(*words: str) -> None:
        call = ["keytool", "-J-Xshare:auto", *words, "-storepass", PASSWORD]
        subprocess.run(call, check=True, capture_output=True, stdin=subprocess.DEVNULL)

    key, trust, cert = str(folder / "key"), str(folder / "trust"), str(folder / "cert")
    made = ["-alias", "me", "-keyalg", "EC", "-dname", "CN=localhost", "-ext", "bc=ca:true", "-keystore", key]
    run("-genkeypair", *made, *kind, *own)
    run("-exportcert", "-rfc", "-alias", "me", "-keystore", key, "-file", cert)
    run("-importcert", "-noprompt", "-alias", "broker", "-keystore", trust, "-file", cert, *kind)
    return folder


@pytest.fixture(scope="module")
def readable(stores: Path) -> Path:
    """key.p12 and trust.p12: the stores, converted if need be."""
    java = (stores / "key").read_bytes()[:4] in client_properties.JAVA_STORES
    for name, of_key in (("key", [OF_KEY]), ("trust", [])):
        made = keytool.converted(stores / name, PASSWORD, *of_key) if java else stores / name
        made.rename(stores / f"{name}.p12")
    return stores


def test_what_keytool_made_makes_a_connection(readable: Path) -> None:
    file = readable / "client.properties"
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.location={readable}/trust.p12\nssl.truststore.password={PASSWORD}\n"
        f"ssl.keystore.location={readable}/key.p12\nssl.keystore.password={PASSWORD}\nssl.key.password={OF_KEY}\n"
    )
    context = connection(file)["ssl_context"]
    wanted = ssl.PEM_cert_to_DER_cert((readable / "cert").read_text())
    assert context.get_ca_certs(binary_form=True) == [wanted]
    key = client_properties.read(readable / "key.p12", PASSWORD)
    assert b"PRIVATE KEY" in key.chain
    assert ssl.PEM_cert_to_DER_cert(key.certificates.decode()) == wanted
    assert client_properties.read(readable / "trust.p12", PASSWORD).chain == b""


def test_a_wrong_password_says_which_store(readable: Path) -> None:
    with pytest.raises(AuditInputError, match="trust") as raised:
        client_properties.read(readable / "trust.p12", "wrong-one")
    assert "wrong-one" not in str(raised.value)
