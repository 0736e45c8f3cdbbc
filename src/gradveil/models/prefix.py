"""Names of weights with what a wrapper puts before all of them: DataParallel, Lightning, torch.compile, an average."""

from __future__ import annotations

from collections.abc import Collection

PREFIXES = ("module.", "model.", "_orig_mod.", "backbone.", "net.", "network.", "ema.", "encoder.")
COUNTERS = {"n_averaged"}  # of torch's AveragedModel, beside the weights


def strip_prefixes(names: Collection[str]) -> str:
    """The prefix that all names have, of as many wrappers as there are.

    >>> strip_prefixes(["_orig_mod.module.fc.weight", "_orig_mod.module.fc.bias"])
    '_orig_mod.module.'
    """
    prefix, left = "", [name for name in names if name not in COUNTERS]
    while found := next((p for p in PREFIXES if left and all(name.startswith(p) for name in left)), ""):
        prefix, left = prefix + found, [name.removeprefix(found) for name in left]
    return prefix


def match_names(found: Collection[str], expected: Collection[str]) -> tuple[dict[str, str], str]:
    """For each name of a file the model's own, and what to say of it; as they are where that fits as well."""
    plain = {name: name for name in found}
    theirs, own = strip_prefixes(found), strip_prefixes(expected)
    if theirs == own:
        return plain, ""
    renamed = {name: own + name.removeprefix(theirs) for name in found if name not in COUNTERS - set(expected)}
    if len(set(renamed.values()) & set(expected)) <= len(set(found) & set(expected)):
        return plain, ""
    return renamed, f"every name in the file begins with {theirs!r}, in the model with {own!r}: matched without it"
