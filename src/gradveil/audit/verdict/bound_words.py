"""Line-up and certificate in sentences, for people who know neither."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradveil.audit.oracle import DRAWN
from gradveil.audit.verdict.bounds import Bounds
from gradveil.audit.verdict.lineup import LineUpResult
from gradveil.core.percent import percent
from gradveil.experiment.record import Record

COPIES = {"jpeg": "saved again as JPEG", "resized": "resized and back", "brighter": "made 5 % brighter"}
UNTOUCHED = (
    "Nothing is drawn at random here: the same picture makes the same update, so who has the picture can confirm "
    "that it was used."
)
WHO = (
    "Whoever has a picture, or a small circle of pictures to choose from, can confirm which one was used. This matters "
    "where taking part is itself sensitive, for patients for example; it does not mean that the picture can be drawn "
    "from the update."
)


def describe_line_up(one: LineUpResult) -> str:
    """The share with its interval, and among how many."""
    between = one.own.interval()
    ends = f"{percent(between.low)} to {percent(between.high, up=True)}"
    return f"{one.hits} of {one.of} pictures among {one.candidates:,} candidates (95 %: {ends})"


def explain_bound(bounds: Bounds) -> Iterator[str]:
    """Why the word is *bounded*."""
    if bounds.bounded_by == "certificate" and bounds.certificate is not None:
        certificate = bounds.certificate
        yield (
            f"The noise alone rules out more: at most {percent(certificate.at_most, up=True)} of the pictures are "
            f"identified (random guessing: {percent(certificate.kappa)}). No assumption on the attacker is made."
        )
        if bounds.lineup is not None and not bounds.doubts:
            yield f"The line-up names {describe_line_up(bounds.lineup)}."
    elif bounds.lineup is not None:
        yield (
            f"The line-up names {describe_line_up(bounds.lineup)}, at most "
            f"{percent(bounds.lineup.own.at_most, up=True)}: no attacker who guesses among such pictures names more."
        )


def explain_open(bounds: Bounds) -> Iterator[str]:
    """What the line-up says where it bounds nothing; nothing where none was planned."""
    if bounds.lineup is None:
        if bounds.planned:
            yield f"No line-up: {(bounds.reason or '; '.join(bounds.doubts.all) or 'it was not held').rstrip('.')}."
        return
    named = f"The line-up names {describe_line_up(bounds.lineup)}"
    if bounds.is_high:
        yield f"{named}: the update still contains the picture."
    elif bounds.doubts:
        yield f"{named}, which rules nothing out."
    else:
        yield f"{named}{_why_open(bounds)}."
    if bounds.doubts:
        yield f"Of the line-up: {'; '.join(bounds.doubts.all)}."


def _why_open(bounds: Bounds) -> str:
    """Why a low line-up that can be believed does not bound."""
    assert bounds.lineup is not None
    if bounds.exceeded:
        return ", but attacks identify more: one of both is wrong"
    if bounds.lineup.kind == "estimated":
        return ", by an estimated likelihood, which bounds nothing"
    if bounds.lineup.beside:
        return ", by the update alone; what leaves beside it may name more"
    if bounds.may_plant:
        return ", with the agreed model; a malicious server may send another"
    if not bounds.drawn:
        return ", which were chosen and not drawn"
    if not bounds.whole:
        return ", but records are missing, or the seal was made again"
    return f", too few to show that {100 * bounds.limit:g} % or fewer are named"


def explain_high(bounds: Bounds) -> Iterator[str]:
    """What goes on after "no leak found"."""
    if bounds.is_high and bounds.lineup is not None:
        yield (
            "But the update still contains the picture, and a stronger attacker may see more: the line-up names "
            f"{describe_line_up(bounds.lineup)}."
        )
        if bounds.doubts:
            yield f"Of the line-up: {'; '.join(bounds.doubts.all)}."
    else:
        yield from explain_open(bounds)


def explain_link(bounds: Bounds, records: Sequence[Record] = ()) -> str:
    """The answer to the second question; `WHO` says why it matters. records: of attacks, which see what is drawn."""
    one = bounds.lineup
    if bounds.linkable == "not linkable":
        return (
            f"Linkable: no. At most {percent(bounds.at_most or 0.0, up=True)} of the pictures can be told from others "
            "by their updates, also by somebody who has them."
        )
    if bounds.linkable == "not evaluated" or one is None:
        return f"Linkable: not evaluated, {_why_unknown(bounds)}."
    near = f"; near copies: {percent(one.near[one.nearest_copy].share())}" if one.near else ""
    copy = f" ({COPIES[one.nearest_copy]})" if one.near else ""
    nature = f" {UNTOUCHED}" if one.own.share() > 0.5 and _repeats(records) else ""
    return f"Linkable: {percent(one.own.share())} of the pictures{near}{copy}.{nature}"


def _why_unknown(bounds: Bounds) -> str:
    if bounds.lineup is None:
        return (bounds.reason or "; ".join(bounds.doubts.all) or "no line-up was held").rstrip(".")
    if bounds.doubts:
        return "; ".join(bounds.doubts.all)
    if bounds.lineup.beside and not bounds.is_high:
        return "what leaves beside the update may name the pictures"
    if bounds.lineup.kind == "estimated" and not bounds.is_high:
        return "an estimated likelihood does not show that pictures cannot be named"
    return f"{describe_line_up(bounds.lineup)} leave both answers open"


def _repeats(records: Sequence[Record]) -> bool:
    """Whether the same client sends the same update twice, as far as anybody looked."""
    looked = [record for record in records if record.explained]
    return bool(looked) and not any(DRAWN in record.flags for record in looked)
