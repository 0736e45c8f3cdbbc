"""Config files from somebody else: every one of them is refused with a line that names file and key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HEAD = "[scenario]\nattacker = 'curious'\n"
DEEP = "[" * 200 + "]" * 200
LONG = "a" * 100_000
STACK = "[defense.stack]\nof = [{of}]"


def nested(depth: int) -> str:
    """Stacks of stacks of stacks."""
    text = "{name = 'none'}"
    for _ in range(depth):
        text = f"{{name = 'stack', of = [{text}]}}"
    return STACK.replace("{of}", text)


WRONG = {  # text after the head of a config -> what the line must name
    # keys
    "imags = 4": "a.toml: scenario.imags",
    "Images = 4": "a.toml: scenario.Images",
    "'images ' = 4": "a.toml: scenario.images ",
    "'' = 4": "a.toml: scenario.",
    "'\\n' = 4": "a.toml: scenario.",
    f"{LONG} = 1": "a.toml: scenario.aaa",
    "__class__ = 1": "a.toml: scenario.__class__",
    "declared = ['x']": "a.toml: scenario.declared",
    "images.x = 1": "a.toml: scenario.images",
    "[scenarios]\nimages = 1": "a.toml: scenarios",
    "[declared]": "a.toml: declared",
    "[defense.none]\nscale = 1": "a.toml: defense.none.scale",
    "[attack.dlg]\nself = 1": "a.toml: attack.dlg.self",
    "[attack.dlg]\nallow_pickle = true": "a.toml: attack.dlg.allow_pickle",
    "allow_pickle = true": "a.toml: scenario.allow_pickle",
    "[also]\nimages = [1]": "a.toml: also.images",
    # types
    "images = 'four'": "a.toml: scenario.images",
    "images = 4.0": "a.toml: scenario.images",
    "images = true": "a.toml: scenario.images",
    "images = [4]": "a.toml: scenario.images",
    "images = {}": "a.toml: scenario.images",
    "images = 1979-05-27": "a.toml: scenario.images",
    "images = 07:32:00": "a.toml: scenario.images",
    f"images = '{LONG}'": "a.toml: scenario.images",
    f"images = {DEEP}": "a.toml: scenario: nested",
    "model = 1": "a.toml: scenario.model",
    "model = ['lenet']": "a.toml: scenario.model",
    "labels = true": "a.toml: scenario.labels",
    "labels = ['known']": "a.toml: scenario.labels",
    "local_rate = '1'": "a.toml: scenario.local_rate",
    "data_options = [1]": "a.toml: scenario.data_options",
    "[scenario.data_options]\nsize = '8'": "a.toml: scenario.data_options.size",
    "[scenario.data_options]\nsize = 1979-05-27": "a.toml: scenario.data_options.size",
    "[attack]\ndlg = 3": "a.toml: attack.dlg",
    "[attack.dlg]\nname = []": "a.toml: attack.dlg.name",
    "[attack.dlg]\nsteps = []": "a.toml: attack.dlg.steps",
    "[attack.dlg]\nboxed = 1": "a.toml: attack.dlg.boxed",
    "[attack.invertgrad]\ntv = ['x']": "a.toml: attack.invertgrad.tv",
    "[attack.invertgrad]\ntv = {}": "a.toml: attack.invertgrad.tv",
    "[defense.stack]\nof = 1": "a.toml: defense.stack",
    "[defense.stack]\nof = ['none']": "a.toml: defense.stack",
    "[defense.stack]\nof = [{}]": "a.toml: defense.stack",
    "[defense.stack]\nof = [{name = 'none', x = 1}]": "a.toml: defense.stack",
    "[defense.stack]\nof = [{name = 'gaussian', scale = 1979-05-27}]": "a.toml: defense.stack.of",
    "[defense.stack]\nof = [{name = 'gaussian', scale = 'much'}]": "a.toml: defense.stack",
    "[defense.stack]\nof = [{name = 'gaussian', scale = nan}]": "a.toml: defense.stack.of",
    "[defense.stack]\nof = [{name = 'sys:exit'}]": "a.toml: defense.stack",
    # ranges
    "images = 0": "a.toml: scenario.images",
    "images = -1": "a.toml: scenario.images",
    "images = 1000000000000": "a.toml: scenario.images",
    f"images = 1{'0' * 400}": "a.toml: scenario.images",
    f"images = {'9' * 5000}": "a.toml: not TOML",
    f"images = 0x{'f' * 9000}": "a.toml: scenario.images",
    f"model = 0x{'f' * 9000}": "a.toml: scenario.model",
    f"local_rate = 1{'0' * 400}": "a.toml: scenario.local_rate",
    "local_rate = 1e400": "a.toml: scenario.local_rate",
    "local_rate = inf": "a.toml: scenario.local_rate",
    "local_rate = nan": "a.toml: scenario.local_rate",
    "local_rate = -1.0": "a.toml: scenario.local_rate",
    "batch_size = 1000000": "a.toml: scenario.batch_size",
    "local_steps = 1000000000000": "a.toml: scenario.local_steps",
    "model_seed = 99999999999999999999": "a.toml: scenario.model_seed",
    "momentum = -0.1": "a.toml: scenario.momentum",
    "[attack.dlg]\nsteps = 1000000000000": "a.toml: attack.dlg.steps: must be at most 10000000",
    "[attack.dlg]\nsteps = 10000001": "a.toml: attack.dlg.steps: must be at most 10000000",
    "[attack.dlg]\nsteps = 0": "a.toml: attack.dlg",
    "[attack.dlg]\nsteps = -5": "a.toml: attack.dlg",
    "[attack.dlg]\nrestarts = 1000000": "a.toml: attack.dlg.restarts",
    "[attack.dlg]\nrestarts = 0": "a.toml: attack.dlg",
    "[attack.invertgrad]\ntv = []": "a.toml: attack.invertgrad",
    f"[attack.invertgrad]\ntv = [{'1.0,' * 5000}]": "a.toml: attack.invertgrad.tv",
    "[defense.gaussian]\nscale = inf": "a.toml: defense.gaussian.scale",
    f"[defense.gaussian]\nscale = 1{'0' * 400}": "a.toml: defense.gaussian.scale",
    f"[defense.stack]\nof = [{{name = 'gaussian', scale = 1{'0' * 400}}}]": "a.toml: defense.stack.of",
    "[defense.stack]\nof = [" + "{name = 'none'}," * 5000 + "]": "a.toml: defense.stack.of",
    "[defense.prune]\nratio = 1.5": "a.toml: defense.prune",
    "data = 'digits'\n[scenario.data_options]\nsize = 1000000": "digits: size",
    "data = 'digits'\n[scenario.data_options]\nsize = 1000000000000": "a.toml: scenario.data_options.size",
    "[scenario.data_options]\ncount = 9000000": "photos: count",
    "[scenario.data_options]\nsize = 100000": "photos: size",
    "[scenario.data_options]\nlimit = 0": "photos: limit",
    "[scenario.data_options]\nsplit = 'val'": "photos: unknown split",
    # names that would be files or code
    "model = 'evil.py:run'": "a.toml: scenario.model",
    "model = '/tmp/evil.py:run'": "a.toml: scenario.model",
    "model = 'os:system'": "a.toml: scenario.model",
    "model = 'torch.hub.load'": "a.toml: scenario.model",
    "model = 'lenet\\u0000'": "a.toml: scenario.model",
    'model = "lenet\\u0000"': "a.toml: scenario.model",
    'model = "lenet\\nseed = 1"': "a.toml: scenario.model",
    'model = "\\u202elenet"': "a.toml: scenario.model",
    f"model = '{LONG}'": "a.toml: scenario.model",
    f"data = '{LONG}'": "a.toml: scenario.data",
    f"data = '{'a/' * 3000}'": "a.toml: scenario.data",
    f"data = '{'a' * 300}'": "a.toml: scenario.data",
    "data = 'https://example.com/x.npz'": "x.npz",
    "data = 'file:///etc/passwd'": "a.toml: scenario.data",
    "data = '/dev/zero'": "a.toml: scenario.data",
    "data = '../../etc'": "a.toml: scenario.data",
    "weights = 'model.pt'\ndata = 'digits'": "model.pt: pickles are not read",
    "[scenario.data_options]\n_target_ = 'os.system'": "a.toml: scenario.data_options._target_",
    "[attack.x]\n_target_ = 'os.system'": "a.toml: attack.x.name",
    "[attack.x]\nname = 'os.system'": "a.toml: attack.x.name",
    "[attack.x]\nname = 'gradveil.attacks.dlg.dlg'": "a.toml: attack.x.name",
    "[attack.'os.system(1)']": "a.toml: attack: label",
    "[attack.'../../x']\nname = 'dlg'": "a.toml: attack: label",
    '[attack."a\\nb"]\nname = "dlg"': "a.toml: attack: label",
    f"[attack.{'a' * 65}]\nname = 'dlg'": "a.toml: attack: label",
    "[attack.'<img src=x>']\nname = 'dlg'": "a.toml: attack: label",
    # shape of the file
    "images = 1\nimages = 2": "a.toml: not TOML",
    "[attack.dlg]\n[attack.dlg]": "a.toml: not TOML",
    "[scenario]": "a.toml: not TOML",
    "a = {b = 1, b = 2}": "a.toml: not TOML",
    "images = ": "a.toml: not TOML",
    "images": "a.toml: not TOML",
    "images = 'one": "a.toml: not TOML",
    "images = \"\\u12\"": "a.toml: not TOML",
    "images = \x00": "a.toml: not TOML",
    "!!python/object/apply:os.system ['true']": "a.toml: not TOML",
    "a: &a [*a, *a]": "a.toml: not TOML",
    "{\"scenario\": {}}": "a.toml: not TOML",
    f"x = {'[' * 100_000}": "a.toml: not TOML",
    f"x = {'{a = ' * 50_000}": "a.toml: not TOML",
    f"x = {DEEP}": "a.toml: scenario: nested",
    f"{'a.' * 200_000}a = 1": "a.toml: a key of more than",
    f"[{'a . ' * 100_000}a]": "a.toml: a key of more than",
    "[" + "'a'." * 100_000 + "a]": "a.toml: a key of more than",
    "[" + '"".' * 100_000 + "a]": "a.toml: a key of more than",
    f"x = {{{'a.' * 100_000}a = 1}}": "a.toml: a key of more than",
    f"{'a.' * 14}a = 1": "a.toml: scenario.a: unknown key",
    nested(40): "a.toml: defense: nested",
    nested(7): "a.toml: defense: nested",
    "\n".join(f"[attack.a{k}]\nname = 'dlg'" for k in range(1001)): "a.toml: attack: 1001 of them",
    "\n".join(f"k{k} = 1" for k in range(50_000)): "a.toml: scenario.k0",
}  # fmt: skip


@pytest.mark.parametrize(("text", "naming"), WRONG.items(), ids=[text[:40] for text in WRONG])
def test_a_wrong_config_is_refused(text: str, naming: str, refused) -> None:
    Path("a.toml").write_text(HEAD + text, encoding="utf-8")
    refused("audit", "a.toml", naming=naming)


CONTENT = {
    "nothing": b"",
    "no attacker": b"seed = 1",
    "utf-16": HEAD.encode("utf-16"),
    "utf-16 without a mark": HEAD.encode("utf-16-le"),
    "utf-32": HEAD.encode("utf-32"),
    "latin-1": "[scenario]\nattacker = 'neugierig\u00e4'".encode("latin-1"),
    "zeros": bytes(10_000),
    "noise": bytes(range(256)) * 40,
    "a picture": b"\x89PNG\r\n\x1a\n",
    "a pickle": b"\x80\x04\x95",
    "a surrogate": HEAD.encode() + b"model = '\xed\xa0\x80'",
    "overlong slash": HEAD.encode() + b"model = '\xc0\xaf'",
    "a megabyte and a byte": b"#" * 1_000_001,
    "carriage returns": HEAD.encode().replace(b"\n", b"\r"),
    "escape sequences": HEAD.encode() + b"\x1b[2Jimages = 1",
}


@pytest.mark.parametrize("kind", CONTENT)
def test_what_is_no_config_is_refused(kind: str, refused) -> None:
    Path("a.toml").write_bytes(CONTENT[kind])
    refused("audit", "a.toml", naming="a.toml: ")


def test_files_that_never_end_or_never_begin(refused) -> None:
    refused("audit", "/dev/zero", naming="/dev/zero: cannot be read")
    os.mkfifo("pipe.toml")
    refused("audit", "pipe.toml", naming="pipe.toml: cannot be read")
    Path("folder.toml").mkdir()
    refused("audit", "folder.toml", naming="folder.toml: cannot be read")
    with open("sparse.toml", "wb") as file:
        file.truncate(2**40)
    refused("audit", "sparse.toml", naming=f"sparse.toml: {2**40} bytes")
    Path("loop.toml").symlink_to("loop.toml")
    refused("audit", "loop.toml", naming="loop.toml: cannot be read")
    refused("audit", "no\nsuch\x1b[2J.toml", naming="no such")
    refused("audit", "a" * 300, naming="aaa: cannot be read")


def test_a_config_with_a_byte_order_mark_is_read(refused) -> None:
    Path("a.toml").write_bytes(b"\xef\xbb\xbf" + HEAD.encode() + b"images = 0")
    refused("audit", "a.toml", naming="a.toml: scenario.images: must be at least 1")
