"""DICOM and NIfTI slices: the numbers that the readers' own libraries give, and nothing for files that lie."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gradveil.core.errors import ConfigError
from gradveil.data import load, medical

pydicom = pytest.importorskip("pydicom", reason="the extra `medical` is not installed")
nibabel = pytest.importorskip("nibabel", reason="the extra `medical` is not installed")

LITTLE, IMPLICIT, BIG = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2", "1.2.840.10008.1.2.2"
DEFLATED, JPEG = "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.4.50"
GRAY = np.random.default_rng(0).integers(0, 4096, (6, 5), np.uint16)
COLOR = np.random.default_rng(1).integers(0, 256, (6, 5, 3), np.uint8)
VOLUME = np.random.default_rng(2).integers(-1000, 2000, (6, 5, 4), np.int16)
MUTATIONS = 150


def dicom(pixels: np.ndarray, syntax: str = LITTLE, stored: int = 0, **tags: Any) -> bytes:
    """A file as pydicom writes it; `tags` are put over what is true."""
    file = pydicom.Dataset()
    file.file_meta = pydicom.dataset.FileMetaDataset()
    file.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
    file.file_meta.MediaStorageSOPClassUID = file.SOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    file.file_meta.MediaStorageSOPInstanceUID = file.SOPInstanceUID = "1.2.3"
    color = pixels.ndim == 3
    file.Rows, file.Columns, file.SamplesPerPixel = *pixels.shape[:2], 3 if color else 1
    file.PhotometricInterpretation = "RGB" if color else "MONOCHROME2"
    if color:
        file.PlanarConfiguration = 0
    file.BitsAllocated = pixels.dtype.itemsize * 8
    file.BitsStored = stored or file.BitsAllocated
    file.HighBit, file.PixelRepresentation = file.BitsStored - 1, int(pixels.dtype.kind == "i")
    raw = pixels.astype(pixels.dtype.newbyteorder(">" if syntax == BIG else "<")).tobytes()
    file.PixelData = raw + b"\0" * (len(raw) % 2)
    file["PixelData"].VR = "OW"
    for name, value in tags.items():
        setattr(file, name, value)
    buffer = BytesIO()
    little, explicit = syntax != BIG, syntax != IMPLICIT
    pydicom.dcmwrite(buffer, file, enforce_file_format=True, little_endian=little, implicit_vr=not explicit)
    return buffer.getvalue()


def nifti(volume: np.ndarray, slope: float = 1.0, intercept: float = 0.0, kind: Any = None) -> bytes:
    image = (kind or nibabel.Nifti1Image)(volume, np.eye(4))
    image.header.set_slope_inter(slope, intercept)
    return image.to_bytes()


def put(folder: Path, name: str, content: bytes) -> str:
    (folder / "mine/a").mkdir(parents=True, exist_ok=True)
    (folder / "mine/a" / name).write_bytes(content)
    return str(folder / "mine")


def gray(folder: Path, name: str, content: bytes, **options: Any) -> np.ndarray:
    images = load(put(folder, name, content), channels=1, **options).images
    assert images.shape[:2] == (1, 1)
    return images[0, 0].double().numpy()


@pytest.mark.parametrize("syntax", [LITTLE, IMPLICIT, BIG])
def test_the_stored_bits_of_a_dicom_file_are_kept(tmp_path: Path, syntax: str) -> None:
    assert np.allclose(gray(tmp_path, "x.dcm", dicom(GRAY, syntax, stored=12)), GRAY / 4095, atol=1e-7)


def test_signed_numbers_and_overlays_above_the_stored_bits(tmp_path: Path) -> None:
    signed = np.array([[-2048, -1], [0, 2047]], np.int16)
    expected = (signed.astype(float) + 2048) / 4095
    assert np.allclose(gray(tmp_path, "x.dcm", dicom(signed, stored=12)), expected, atol=1e-7)
    overlaid = GRAY | np.uint16(0x8000)
    assert np.allclose(gray(tmp_path, "x.dcm", dicom(overlaid, stored=12)), GRAY / 4095, atol=1e-7)


def test_a_range_is_of_rescaled_numbers(tmp_path: Path) -> None:
    """A window from -160 to 240 Hounsfield units."""
    content = dicom(GRAY, stored=12, RescaleSlope="2", RescaleIntercept="-1024")
    expected = np.clip((GRAY.astype(float) * 2 - 1024 + 160) / 400, 0, 1)
    assert np.allclose(gray(tmp_path, "x.dcm", content, range="-160,240"), expected, atol=1e-7)


def test_white_may_be_the_least_number(tmp_path: Path) -> None:
    content = dicom(GRAY, stored=12, PhotometricInterpretation="MONOCHROME1")
    assert np.allclose(gray(tmp_path, "x.dcm", content), 1 - GRAY / 4095, atol=1e-6)


@pytest.mark.parametrize("planar", [0, 1])
def test_color_and_frames(tmp_path: Path, planar: int) -> None:
    stored = COLOR.transpose(2, 0, 1) if planar else COLOR
    content = dicom(COLOR, PixelData=stored.tobytes(), PlanarConfiguration=planar)
    images = load(put(tmp_path, "x.dcm", content)).images
    assert torch.allclose(images[0], torch.from_numpy(COLOR / 255).permute(2, 0, 1).float())
    frames = np.stack([GRAY, GRAY // 2, GRAY // 4])
    content = dicom(GRAY, PixelData=frames.tobytes(), NumberOfFrames=3)
    assert np.allclose(gray(tmp_path, "x.dcm", content), frames[1] / 65535)
    assert np.allclose(gray(tmp_path, "x.dcm", content, plane=2), frames[2] / 65535)
    with pytest.raises(ConfigError, match="has 3 slices, plane is 3, choose 0 to 2"):
        load(str(tmp_path / "mine"), plane=3)


@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz"])
def test_a_slice_of_a_volume_is_what_nibabel_gives(tmp_path: Path, name: str, kind: Any) -> None:
    content = nifti(VOLUME, 2.0, -7.0, kind)
    content = gzip.compress(content) if name.endswith(".gz") else content
    whole = nibabel.Nifti1Image if kind is nibabel.Nifti1Image else nibabel.Nifti2Image
    volume = whole.from_bytes(nifti(VOLUME, 2.0, -7.0, kind)).get_fdata()
    for plane, k in ((None, 2), (0, 0), (3, 3)):
        expected = (volume[:, :, k] - volume.min()) / (volume.max() - volume.min())
        assert np.allclose(gray(tmp_path, name, content, plane=plane), expected, atol=1e-6)
    expected = np.clip((volume[:, :, 2] + 500) / 1500, 0, 1)
    assert np.allclose(gray(tmp_path, name, content, range="-500,1000"), expected, atol=1e-6)


def test_a_volume_of_the_other_order_of_bytes(tmp_path: Path) -> None:
    header = nibabel.Nifti1Header(endianness=">")
    header.set_data_dtype(np.int16)
    content = nibabel.Nifti1Image(VOLUME, np.eye(4), header).to_bytes()
    expected = (VOLUME[:, :, 1] - float(VOLUME.min())) / float(VOLUME.max() - float(VOLUME.min()))
    assert np.allclose(gray(tmp_path, "x.nii", content, plane=1), expected, atol=1e-6)


def stored_as(syntax: str, content: bytes) -> bytes:
    """A file that says that its pixels are stored so."""
    plain, said = (len(s).to_bytes(2, "little") + s for s in (LITTLE.encode() + b"\0", syntax.encode()))
    assert len(syntax) % 2 == 0
    assert plain in content
    return content.replace(plain, said)


def header(**fields: Any) -> bytes:
    """A volume of 6x5x4 whose header says something else."""
    content = bytearray(nifti(VOLUME))
    changed = nibabel.Nifti1Header(bytes(content[:348]), check=False)
    for name, value in fields.items():
        changed[name] = value
    content[:348] = changed.binaryblock
    return bytes(content)


HUGE = [3, 32767, 32767, 32767, 1, 1, 1, 1]
LIES: dict[str, tuple[str, bytes, str]] = {
    "rows": ("x.dcm", dicom(GRAY, Rows=65535, Columns=65535), "claims 1 frames of 65535x65535"),
    "more rows": ("x.dcm", dicom(GRAY, Rows=60), "claims 600 bytes of pixels and holds 60"),
    "frames": ("x.dcm", dicom(GRAY, NumberOfFrames=2**31 - 1), "NumberOfFrames is 2147483647"),
    "many frames": ("x.dcm", dicom(GRAY, NumberOfFrames=4_000_000), "claims 240,000,000 bytes|claims 4000000 frames"),
    "no frames": ("x.dcm", dicom(GRAY, NumberOfFrames=0), "NumberOfFrames is 0"),
    "no rows": ("x.dcm", dicom(GRAY, Rows=0), "Rows is 0, expected 1 to"),
    "no pixels": ("x.dcm", dicom(GRAY, PixelData=b""), "claims 60 bytes of pixels and holds 0"),
    "half the pixels": ("x.dcm", dicom(GRAY)[:-30], "x.dcm: "),
    "other bits": ("x.dcm", dicom(GRAY, BitsAllocated=32), "BitsAllocated is 32, expected 8 to 16"),
    "12 bits packed": ("x.dcm", dicom(GRAY, BitsAllocated=12, BitsStored=12), "is of 12 bits"),
    "a palette": ("x.dcm", dicom(GRAY, PhotometricInterpretation="PALETTE COLOR"), "'PALETTE COLOR'"),
    "a slope": ("x.dcm", dicom(GRAY, RescaleSlope="1e30"), "RescaleSlope is '1e30', no finite number"),
    "compressed": (
        "x.dcm",
        stored_as(JPEG, dicom(GRAY)),
        r"are compressed \(transfer syntax '1\.2\.840\.10008\.1\.2\.4\.50",
    ),
    "no preamble": ("x.dcm", dicom(GRAY)[132:], "it has no DICM mark"),
    "empty": ("x.dcm", b"", "it has no DICM mark"),
    "dims": ("x.nii", header(dim=HUGE), "claims 32767x32767x32767 voxels, the limit is"),
    "a longer dim": ("x.nii", header(dim=[3, 6, 5, 400, 1, 1, 1, 1]), "claims 24,000 bytes of voxels and holds 240"),
    "a negative dim": ("x.nii", header(dim=[3, -6, 5, 4, 1, 1, 1, 1]), "has the dimensions"),
    "four dims": ("x.nii", header(dim=[4, 6, 5, 2, 2, 1, 1, 1]), "has the dimensions"),
    "too many dims": ("x.nii", header(dim=[200, 6, 5, 4, 1, 1, 1, 1]), "has the dimensions|damaged"),
    "an offset": ("x.nii", header(vox_offset=1e9), "begin at byte 1e\\+09"),
    "no offset": ("x.nii", header(vox_offset=float("nan")), "begin at byte nan"),
    "another type": ("x.nii", header(datatype=128), "expected plain numbers|damaged"),
    "another file": ("x.nii", header(magic=b"ni1"), "lie in another file"),
    "half the voxels": ("x.nii", nifti(VOLUME)[:-100], "claims 240 bytes of voxels and holds 140"),
    "half the gz": ("x.nii.gz", gzip.compress(nifti(VOLUME))[:-90], "x.nii.gz: "),
    "text": ("x.nii", b"hello" * 100, "it has no NIfTI header"),
    "NaN": ("x.nii", nifti(np.full((4, 4, 4), np.nan, np.float32)), "NaN or infinite"),
}


@pytest.mark.parametrize("kind", LIES)
def test_a_file_that_lies_is_one_line(kind: str, tmp_path: Path) -> None:
    name, content, message = LIES[kind]
    options = {"range": "0,1"} if "Rescale" in message else {}
    place = put(tmp_path, name, content)
    tracemalloc.start()
    with pytest.raises(ConfigError, match=message) as caught:
        load(place, **options)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert f"mine/a/{name}" in str(caught.value)
    assert most < 20e6
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "a", name]


def deflate_bomb() -> bytes:
    """A deflated data set that would be 2 GB; the reader would inflate all of it at once."""
    import zlib

    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = b"".join(packer.compress(bytes(2**20)) for _ in range(64)) + packer.flush()
    plain = dicom(GRAY)
    start = plain.index(b"\x08\x00\x16\x00")  # where the group of file meta information ends
    return stored_as(DEFLATED, plain[:start]) + packed


def gz_bomb() -> bytes:
    claimed = header(dim=[3, 512, 512, 400, 1, 1, 1, 1])[:352]
    return gzip.compress(claimed + bytes(2 * 512 * 512 * 400), 9)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.dcm", deflate_bomb(), r"its pixels are compressed .*1\.99"),
        ("x.nii.gz", gz_bomb(), "would grow from"),
    ],
    ids=["deflated", "gz"],
)
def test_what_expands_is_not_expanded(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    place = put(tmp_path, name, content)
    tracemalloc.start()
    with pytest.raises(ConfigError, match=message):
        load(place)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20e6


ORIGINALS = {
    "x.dcm": dicom(GRAY, stored=12, RescaleSlope="2", RescaleIntercept="-1024", NumberOfFrames=1),
    "x.nii": nifti(VOLUME, 2.0, -7.0),
    "x.nii.gz": gzip.compress(nifti(VOLUME)),
}


@pytest.mark.parametrize("name", ORIGINALS)
def test_mutations_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """Bytes changed, cut, filled and put in: pictures in [0, 1] or one line, and little memory either way."""
    draw, refusals, read = random.Random(0), [], 0
    for _ in range(MUTATIONS):
        content = bytearray(ORIGINALS[name])
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(128 if name == "x.dcm" else 0, len(content))
            kind = draw.choice(("set", "cut", "fill", "insert"))
            if kind == "set":
                content[at] = draw.randrange(256)
            elif kind == "cut":
                del content[at : at + draw.randint(1, 40)]
            elif kind == "fill":
                content[at : at + 4] = b"\xff\xff\xff\x7f"
            else:
                content[at:at] = bytes(draw.randrange(256) for _ in range(8))
            if len(content) < 200:
                break
        place = put(tmp_path, name, bytes(content))
        tracemalloc.start()
        try:
            images = load(place, range="0,1000").images
            assert bool(((images >= 0) & (images <= 1)).all())
            read += 1
        except ConfigError as error:
            refusals.append(str(error))
        assert tracemalloc.get_traced_memory()[1] < 50e6
        tracemalloc.stop()
    assert read + len(refusals) == MUTATIONS
    assert len(refusals) >= MUTATIONS // 5
    assert not [line for line in refusals if "\n" in line or name not in line or "TypeCheck" in line]


@pytest.mark.parametrize("name", ["x.dcm", "x.nii"])
def test_without_the_library_one_line_says_so(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise ImportError("not there")

    monkeypatch.setattr(medical.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"install it: pip install 'gradveil\[medical\]'"):
        load(put(tmp_path, name, ORIGINALS[name]))


def test_volumes_of_one_size_make_a_data_set(tmp_path: Path) -> None:
    put(tmp_path, "x.nii.gz", ORIGINALS["x.nii.gz"])
    put(tmp_path, "y.NII", nifti(VOLUME + 1))
    assert load(str(tmp_path / "mine"), size=4, resize="bilinear").images.shape == (2, 3, 4, 4)
