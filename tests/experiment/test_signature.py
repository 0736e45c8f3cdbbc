"""`gradveil sign`, `verify --key` and `verify --id`."""

from __future__ import annotations

import builtins
import json
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from toys import Noise, audit

from gradveil.audit.audit import run_audit
from gradveil.cli import main
from gradveil.experiment.seal import find_changes, read_seal
from gradveil.report.conclude import conclude

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run_audit(audit({"a": Noise()}), tmp_path / "run")
    conclude(tmp_path / "run")
    return tmp_path / "run"


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def write_keys(name: str, form: str = "pem", password: bytes | None = None, key: Any = None) -> None:
    """NAME and NAME.pub."""
    key = key or ed25519.Ed25519PrivateKey.generate()
    encoding, private = (getattr(serialization, kind) for kind in ("Encoding", "PrivateFormat"))
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    kind = private.PKCS8 if form == "pem" else private.OpenSSH
    Path(name).write_bytes(key.private_bytes(encoding.PEM, kind, locked))
    public = serialization.PublicFormat
    pair = (encoding.PEM, public.SubjectPublicKeyInfo) if form == "pem" else (encoding.OpenSSH, public.OpenSSH)
    Path(f"{name}.pub").write_bytes(key.public_key().public_bytes(*pair))


@pytest.mark.parametrize("form", ["pem", "ssh"])
def test_both_halves_of_the_key_verify(form: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_keys("key", form)
    assert code("sign", "run", "--key", "key") == 0
    signed = capsys.readouterr().out
    assert signed.startswith(f"signed id {read_seal(run).id[:16]} with key SHA256:")
    for half in ("key", "key.pub"):
        assert code("verify", "run", "--key", half) == 0
        assert capsys.readouterr().out.endswith(f", signed with {signed.partition(' with ')[2]}")
    assert find_changes(run) == []
    assert stat.S_IMODE((run / "signature.json").stat().st_mode) == 0o600
    assert "PRIVATE" not in (run / "signature.json").read_text()


@pytest.mark.parametrize(
    "command",
    [
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", "key"],
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"],
    ],
    ids=lambda command: command[0],
)
def test_keys_of_the_usual_tools(command: list[str], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    subprocess.run(command, check=True, capture_output=True)
    assert code("sign", "run", "--key", "key") == 0
    assert code("verify", "run", "--key", "key") == 0
    if command[0] == "ssh-keygen":
        listed = subprocess.run(
            ["ssh-keygen", "-l", "-f", "key.pub"], check=True, capture_output=True, text=True
        ).stdout
        assert listed.split()[1] in capsys.readouterr().out


def test_a_signature_is_that_of_openssl(run: Path) -> None:
    """The bytes that are signed can be checked without us."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here")
    write_keys("key")
    assert code("sign", "run", "--key", "key") == 0
    stored = json.loads((run / "signature.json").read_text())
    Path("message").write_text(f"gradveil seal {read_seal(run).id}")
    Path("signature").write_bytes(bytes.fromhex(stored["signature"]))
    checked = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "key.pub", "-rawin", "-in", "message"]
    subprocess.run([*checked, "-sigfile", "signature"], check=True, capture_output=True)


def test_a_run_that_changed_does_not_verify(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_keys("key")
    assert code("sign", "run", "--key", "key") == 0
    conclude(run, redact=True)  # sealed again, in all honor
    capsys.readouterr()
    assert code("verify", "run", "--key", "key.pub") == 2
    assert "signature.json: the run was sealed again since it was signed" in capsys.readouterr().err
    (run / "journal.jsonl").write_bytes(b"")
    assert code("verify", "run", "--key", "key.pub") == 2
    assert code("sign", "run", "--key", "key") == 2
    assert capsys.readouterr().err.count("journal.jsonl: changed since the run was sealed") == 2


def test_a_signed_run_goes_on_and_is_signed_again(run: Path) -> None:
    write_keys("key")
    assert code("sign", "run", "--key", "key") == 0
    run_audit(audit({"a": Noise()}), run)
    conclude(run)
    assert code("verify", "run") == 0
    assert code("verify", "run", "--key", "key") == 2
    assert code("sign", "run", "--key", "key") == 0
    assert code("verify", "run", "--key", "key") == 0


def forge(run: Path, **changes: Any) -> None:
    path = run / "signature.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_forged_signatures(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_keys("key")
    write_keys("other")
    assert code("verify", "run", "--key", "key") == 2
    assert "signature.json: not there, the run is not signed" in capsys.readouterr().err
    assert code("sign", "run", "--key", "other") == 0
    assert code("verify", "run", "--key", "key.pub") == 2
    assert "signed with another key" in capsys.readouterr().err
    forge(run, key=Path("other.pub").read_text())
    for changes in ({"signature": "00" * 64}, {"signature": "no hex"}, {"signature": None}):
        assert code("sign", "run", "--key", "key") == 0
        forge(run, **changes)
        assert code("verify", "run", "--key", "key.pub") == 2
        assert "not the signature of this run" in capsys.readouterr().err
    for content in ("[]", "{", "[" * 100_000, "{}"):
        (run / "signature.json").write_text(content)
        assert code("verify", "run", "--key", "key.pub") == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_what_is_no_key_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed448

    write_keys("key")
    write_keys("locked", password=b"secret")
    write_keys("curve", key=ec.generate_private_key(ec.SECP256R1()))
    write_keys("ed448", key=ed448.Ed448PrivateKey.generate())
    Path("text").write_text("hello")
    Path("long").write_bytes(bytes(1 << 17))
    if shutil.which("ssh-keygen"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", "sshlocked"], check=True)
        expected = {"sshlocked": "has a passphrase"}
    else:
        expected = {}
    expected |= {
        "key.pub": "is a public key",
        "locked": "has a passphrase",
        "curve": "is not ed25519",
        "curve.pub": "is not ed25519",
        "ed448": "is not ed25519",
        "text": "not a key",
        "long": "not the file of a key",
        "nowhere": "cannot be read",
        ".": "not the file of a key",
    }
    for name, message in expected.items():
        assert code("sign", "run", "--key", name) == 2, name
        line = capsys.readouterr().err
        assert line.startswith(f"error: --key: {name}")
        assert message in line
        assert line.count("\n") == 1
    assert not (run / "signature.json").exists()


def test_without_the_package_the_extra_is_named(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keys("key")
    plain = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "cryptography":
            raise ImportError(name)
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    for command in ("sign", "verify"):
        assert code(command, "run", "--key", "key") == 2
        assert capsys.readouterr().err == "error: --key: needs cryptography, `pip install 'gradveil[sign]'`\n"
    assert code("verify", "run") == 0


def test_the_id_that_was_noted(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    id = read_seal(run).id
    for noted in (id, id[:16], id[:20].upper()):
        assert code("verify", "run", "--id", noted) == 0
    other = ("0" if id[0] != "0" else "1") + id[1:16]
    capsys.readouterr()
    assert code("verify", "run", "--id", other) == 2
    assert capsys.readouterr().err.startswith(f"error: --id: the run has {id[:16]}: it is another run")
    for wrong in ("", id[:15], id + "0", "x" * 16):
        assert code("verify", "run", "--id", wrong) == 2
        assert capsys.readouterr().err.startswith("error: --id: must be 16 to 64 hexadecimal digits")
    (run / "seal.json").unlink()
    conclude(run)
    assert code("verify", "run", "--id", id) == 2


def test_who_signs_a_run_vouches_for_its_new_seal(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_keys("key")
    (run / "seal.json").unlink()
    conclude(run)
    assert code("verify", "run") == 1
    assert code("sign", "run", "--key", "key") == 0
    capsys.readouterr()
    assert code("verify", "run", "--key", "key.pub") == 0
    assert capsys.readouterr().err.startswith("note: sealed again on ")
