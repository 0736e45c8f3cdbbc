"""Zips and folders from somebody else: what is read, and what is refused before a byte of it is."""

from __future__ import annotations

import stat
import warnings
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from gradveil.core.errors import ConfigError
from gradveil.data import archive as files
from gradveil.data import load
from gradveil.data.archive import open_files


def png(color: int = 0, size: int = 4) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (size, size), (color, 0, 255)).save(buffer, "PNG")
    return buffer.getvalue()


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def refusal(path: Path) -> str:
    def read_all() -> None:
        with open_files(path) as found:
            for name in found.names:
                found.read(name)

    with pytest.raises(ConfigError) as error:
        read_all()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_zip_and_a_folder_of_the_same_files_read_alike(tmp_path: Path) -> None:
    members = {"b/2.png": png(2), "a/1.png": png(1), "labels.csv": b"x", ".hidden": b"", "__MACOSX/a/._1.png": b""}
    archive = zipped(tmp_path / "a.zip", members)
    for name, content in members.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(content)
    with open_files(archive) as left, open_files(tmp_path / "folder") as right:
        assert left.names == right.names == ("a/1.png", "b/2.png", "labels.csv")
        assert [left.read(name) for name in left.names] == [right.read(name) for name in right.names]


@pytest.mark.parametrize(
    "name", ["../up.png", "/etc/x.png", "a/../../b.png", "c:/x.png", "a\\..\\b.png", "a//b.png", "./a.png", "a\nb.png"]
)
def test_paths_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    assert "is no plain path inside the zip" in refusal(zipped(tmp_path / "a.zip", {name: png()}))


def test_a_bomb(tmp_path: Path) -> None:
    said = refusal(zipped(tmp_path / "a.zip", {"a/1.png": bytes(5_000_000)}))
    assert "'a/1.png' would grow from" in said
    assert "more than 100 times" in said


def test_a_file_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 10)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/1.png").write_bytes(png())
    for root in (zipped(tmp_path / "a.zip", {"1.png": png()}), tmp_path / "folder"):
        assert "the limit for one file is 10" in refusal(root)


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST", 2)
    members = {f"a/{k}.png": b"x" for k in range(3)}
    assert "more than 2 files" in refusal(zipped(tmp_path / "a.zip", members))


def test_a_name_twice(tmp_path: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("a/1.png", png(1))
        archive.writestr("a/1.png", png(2))
    assert "'a/1.png' is there twice" in refusal(tmp_path / "a.zip")


def test_links(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("a/1.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "is a link" in refusal(tmp_path / "a.zip")
    (tmp_path / "folder").mkdir()
    (tmp_path / "secret.png").write_bytes(png())
    (tmp_path / "folder/1.png").symlink_to(tmp_path / "secret.png")
    assert "a link that leads out of" in refusal(tmp_path / "folder")


def test_members_that_share_their_bytes(tmp_path: Path) -> None:
    """Two entries of the directory over one stored member: each looks modest."""
    raw = zipped(tmp_path / "a.zip", {"a/1.png": bytes(range(256)) * 300, "a/2.png": b"y"}).read_bytes()
    place = raw.rindex(b"PK\x01\x02")  # of the second entry: claim the size of the first
    forged = bytearray(raw)
    forged[place + 20 : place + 24] = (10**6).to_bytes(4, "little")
    (tmp_path / "b.zip").write_bytes(bytes(forged))
    assert "claim more bytes than the file has" in refusal(tmp_path / "b.zip")


def test_damage(tmp_path: Path) -> None:
    raw = zipped(tmp_path / "a.zip", {"a/1.png": bytes(range(256)) * 40}).read_bytes()
    (tmp_path / "cut.zip").write_bytes(raw[:100])
    (tmp_path / "flipped.zip").write_bytes(raw[:60] + bytes([raw[60] ^ 255]) + raw[61:])
    (tmp_path / "text.zip").write_text("no zip at all")
    for name in ("cut.zip", "flipped.zip", "text.zip"):
        assert "damaged or not a zip file" in refusal(tmp_path / name)


def test_an_encrypted_member(tmp_path: Path) -> None:
    raw = bytearray(zipped(tmp_path / "a.zip", {"a/1.png": png()}).read_bytes())
    raw[raw.rindex(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "b.zip").write_bytes(bytes(raw))
    assert "is encrypted" in refusal(tmp_path / "b.zip")


def test_an_error_of_the_reader_is_not_taken_for_damage(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"a/1.png": png()})
    with pytest.raises(ZeroDivisionError), open_files(archive):
        raise ZeroDivisionError


@pytest.mark.parametrize("content", [b"not a picture", png()[:40], b"GIF89a" + bytes(20)])
def test_what_only_claims_to_be_a_picture(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"a\.zip: a/1\.png: "):
        load(str(zipped(tmp_path / "a.zip", {"a/1.png": content})))
