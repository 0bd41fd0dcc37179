"""Stores that Java's own keytool made: JKS and PKCS12, for trust and for a client's key."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from auditor.base.errors import AuditInputError
from auditor.connectors.live import client_properties
from auditor.connectors.live.client_properties import connection

PASSWORD, OF_KEY = "store-pass", "key-pass-1"
pytestmark = pytest.mark.skipif(shutil.which("keytool") is None, reason="no keytool on PATH")


@pytest.fixture(scope="module", params=["JKS", "PKCS12"])
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """key: a private key (a JKS store hides it by a password of its own); trust: its certificate."""
    folder = tmp_path_factory.mktemp(request.param)
    kind = ["-storetype", request.param]
    own = ["-keypass", OF_KEY] if request.param == "JKS" else []

    def keytool(*words: str) -> None:
        call = ["keytool", "-J-Xshare:auto", *words, "-storepass", PASSWORD]
        subprocess.run(call, check=True, capture_output=True, stdin=subprocess.DEVNULL)

    key, trust, cert = str(folder / "key"), str(folder / "trust"), str(folder / "cert")
    made = ["-alias", "me", "-keyalg", "EC", "-dname", "CN=localhost", "-ext", "bc=ca:true", "-keystore", key]
    keytool("-genkeypair", *made, *kind, *own)
    keytool("-exportcert", "-rfc", "-alias", "me", "-keystore", key, "-file", cert)
    keytool("-importcert", "-noprompt", "-alias", "broker", "-keystore", trust, "-file", cert, *kind)
    return folder


def test_what_keytool_made_makes_a_connection(stores: Path) -> None:
    file = stores / "client.properties"
    own = f"ssl.key.password={OF_KEY}\n" if (stores / "key").read_bytes()[:4] in client_properties.JKS_MAGIC else ""
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.location={stores}/trust\nssl.truststore.password={PASSWORD}\n"
        f"ssl.keystore.location={stores}/key\nssl.keystore.password={PASSWORD}\n{own}"
    )
    context = connection(file)["ssl_context"]
    wanted = ssl.PEM_cert_to_DER_cert((stores / "cert").read_text())
    assert context.get_ca_certs(binary_form=True) == [wanted]
    key = client_properties.read(stores / "key", PASSWORD, OF_KEY)
    assert b"PRIVATE KEY" in key.chain
    assert ssl.PEM_cert_to_DER_cert(key.certificates.decode()) == wanted
    assert client_properties.read(stores / "trust", PASSWORD, None).chain == b""


def test_a_wrong_password_says_which_store(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda words, **how: calls.append(words) or run(words, **how))
    with pytest.raises(AuditInputError, match="trust") as raised:
        client_properties.read(stores / "trust", "wrong-one", None)
    assert "wrong-one" not in str(raised.value)
    assert "wrong-one" not in str(calls)


def test_jks_without_keytool_says_how_to_convert_it(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_properties, "_keytool", lambda: None)
    if (stores / "key").read_bytes()[:4] not in client_properties.JKS_MAGIC:
        assert client_properties.read(stores / "key", PASSWORD, None).chain
    else:
        with pytest.raises(AuditInputError, match="-importkeystore"):
            client_properties.read(stores / "key", PASSWORD, None)
