"""Doubts about a number: each flag has a title, when it is raised, why it matters and what to do.

The report prints these texts and `docs/flags.md` is made of them: `python -m gradveil.flags > docs/flags.md`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One doubt. `raised_if` completes "Raised if"."""

    title: str
    raised_if: str
    explanation: str
    do_this: str


FLAGS: dict[str, Flag] = {
    "not-better-than-blank": Flag(
        title="No better than a blank picture",
        raised_if=(
            "a uniform picture in the mean color of public data (mid-gray if there is none) is at least as close to "
            "the original as the reconstruction is."
        ),
        explanation=(
            "By squared error the attack saw nothing of this picture. That can mean that the update gives little away, "
            "or that the attack was too weak: wrong settings, too few steps, an objective that does not fit. "
            "The number alone cannot tell these apart."
        ),
        do_this=(
            "Look at the same attack on the undefended model in the same run. If it fails there too, the attack is at "
            "fault: give it more steps or restarts, or choose another, before concluding anything about the defense."
        ),
    ),
    "did-not-converge": Flag(
        title="The attack did not converge",
        raised_if="the attacker's loss was still falling when its steps ran out, or never fell at all.",
        explanation=(
            "The reconstruction is a snapshot of an unfinished search. A patient attacker would go on, so the scores "
            "of this trial are a lower bound on what leaks."
        ),
        do_this="Double `steps` (or raise `restarts`) until doubling again does not move the scores.",
    ),
    "fallback-backend": Flag(
        title="A slower back end was used",
        raised_if="the fastest back end could not run this model or this defense and another took its place.",
        explanation=(
            "All back ends compute the same attack, so the scores stand. The run took longer than it could have, and "
            "the notes of the record say which part of the model was in the way."
        ),
        do_this="Nothing, unless time matters: then read the note and replace the layer that it names.",
    ),
    "tf32": Flag(
        title="Reduced precision (TF32)",
        raised_if="the run was asked to round matrix products to TF32.",
        explanation=(
            "TF32 keeps about three decimal digits in each product. Attacks that search are barely affected, but "
            "closed-form attacks divide small gradients and lose many decibels: they look weaker than they are."
        ),
        do_this="Repeat the cells that decide anything with `--precision float32`.",
    ),
    "non-finite": Flag(
        title="Numbers that are not finite",
        raised_if="a loss, a gradient or a reconstructed pixel became infinite or not a number.",
        explanation=(
            "The search of this trial broke down. It is counted as failed and has no score: "
            "a broken attack is not evidence of protection."
        ),
        do_this=(
            "Lower the attack's rate or run it with `--precision float64`. If it only happens with a defense, look at "
            "what that defense sends: exact zeros and very large values are the usual cause."
        ),
    ),
    "labels-inferred": Flag(
        title="Labels were inferred",
        raised_if="the attacker was not given the labels and worked them out from the update.",
        explanation=(
            "Label inference can be wrong, above all for large batches, and a wrong label weakens the reconstruction. "
            "An attacker who happens to know the labels may see more than these scores show."
        ),
        do_this="Run the same audit with `--labels known` and report the worse of the two.",
    ),
    "repeated-labels": Flag(
        title="Labels repeat within the batch",
        raised_if="two pictures of one batch carry the same label.",
        explanation=(
            "Gradients of pictures with the same label overlap, so they are harder to tell apart, and label inference "
            "from signs no longer holds. Batches with distinct labels may leak more."
        ),
        do_this="Audit batches with distinct labels as well, or a batch size of 1, which bounds both cases.",
    ),
}


def as_markdown() -> str:
    """The page `docs/flags.md`."""
    head = (
        "# Flags\n\n"
        "A number comes with its doubt. A flag marks a trial whose score needs a second look; the report shows it "
        "beside the number, and this page says what it means.\n"
    )
    return head + "".join(_section(name, flag) for name, flag in FLAGS.items())


def _section(name: str, flag: Flag) -> str:
    return (
        f"\n## {name}\n\n**{flag.title}.**\n\n*Raised if* {flag.raised_if}\n\n"
        f"*Explanation.* {flag.explanation}\n\n*Do this.* {flag.do_this}\n"
    )


if __name__ == "__main__":
    print(as_markdown(), end="")
