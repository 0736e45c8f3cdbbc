"""Doubts about a number: each flag has a title, when it is raised, why it matters and what to do.

The report prints these texts and `docs/flags.md` is made of them: `python -m gradveil.audit.flags > docs/flags.md`.
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
        do_this="Repeat the cells that decide anything with `precision = float32`.",
    ),
    "non-finite": Flag(
        title="Numbers that are not finite",
        raised_if="a loss, a gradient or a reconstructed pixel became infinite or not a number.",
        explanation=(
            "The search of this trial broke down. It is counted as failed and has no score: "
            "a broken attack is not evidence of protection."
        ),
        do_this=(
            "Lower the attack's rate or run it with `precision = float64`. If it only happens with a defense, look at "
            "what that defense sends: exact zeros and very large values are the usual cause."
        ),
    ),
    "no-truth": Flag(
        title="There is no original to compare with",
        raised_if="a captured round is audited without `data`, so that the client's pictures are not known.",
        explanation=(
            "Nothing can be scored, and there is no verdict. `match` says how well the reconstruction explains the "
            "update that was received: several pictures can do so nearly alike, and a defense lowers it without hiding "
            "anything. What counts is what a person recognizes that is not in the picture made without the update."
        ),
        do_this=(
            "Look at the pictures. If the client's pictures can be had, set `data`; if not, simulate the "
            "same model and training on pictures like them and audit that."
        ),
    ),
    "not-replayed": Flag(
        title="The pictures given do not reproduce the update",
        raised_if=(
            "training on the pictures that were given for a captured client does not lead to the update that came, "
            "and they explain it no better than other pictures do."
        ),
        explanation=(
            "Either they are not the client's pictures, or not in its order, or the capture says something wrong of "
            "the training, or a defense changed the update beyond recognition. Scores against them can be too low, so "
            "that no leak was found would mean nothing."
        ),
        do_this=(
            "Read `replay` in provenance.json: it names what was tried and what fits best. Give the right pictures "
            "with `pictures`, or mend the capture."
        ),
    ),
    "labels-inferred": Flag(
        title="Labels were inferred",
        raised_if="the attacker was not given the labels and worked them out from the update.",
        explanation=(
            "Label inference can be wrong, above all for large batches, and a wrong label weakens the reconstruction. "
            "An attacker who happens to know the labels may see more than these scores show."
        ),
        do_this="Run the same audit with `labels = known` and report the worse of the two.",
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
    "no-diagnostic": Flag(
        title="No defense was audited where an attack has it easiest",
        raised_if=(
            "no audited scenario is diagnostic: one picture per batch, one step, evaluation mode, labels known, "
            "untrained weights. The control that is named `-diagnostic` does not count, since no defense meets the "
            "attacks there: it shows that they work."
        ),
        explanation=(
            "What holds for the deployment as configured may hold only because the batch is large or the model is "
            "trained. A client with one picture, or an early round, may leak where these did not."
        ),
        do_this=(
            "Audit the defenses in the diagnostic case too: a batch size of 1, one local step, known labels and no "
            "`weights`."
        ),
    ),
    "single-stage": Flag(
        title="One stage of training only",
        raised_if="every audited scenario uses the same weights.",
        explanation=(
            "Leakage changes in the course of training, and several defenses fail in the first rounds only. "
            "One checkpoint says nothing about the others."
        ),
        do_this=(
            "Audit checkpoints of the start, about 1 %, about 10 % and the end of training, for instance with "
            "`also.weights`, and report the worst."
        ),
    ),
    "single-batch-size": Flag(
        title="One batch size only",
        raised_if="every audited scenario has the same number of pictures per client.",
        explanation="Smaller batches usually leak more, and the last batch of a client is often a small one.",
        do_this="Add sizes, 1 among them: `also.batch_size = [1, 4]`.",
    ),
    "single-local-steps": Flag(
        title="One number of local steps only",
        raised_if="every audited scenario takes the same number of local steps.",
        explanation="One step (FedSGD) and several (FedAvg) leak differently; an attack can fit one and not the other.",
        do_this="Add the other: `also.local_steps = [1, 5]`.",
    ),
    "no-ablation": Flag(
        title="What the attacker knows was not varied",
        raised_if="labels and batch normalization were not both varied.",
        explanation=(
            "Known labels and fixed statistics make an attack easier. Without the other cases nobody can tell how much "
            "of the result rests on them."
        ),
        do_this='Vary one at a time: `also.labels = ["known", "inferred"]`, then `also.batchnorm = ["eval", "batch"]`.',
    ),
    "unknown-weights": Flag(
        title="A metric with weights of its own",
        raised_if="the weights of a metric's network (LPIPS, tagger) are not the published ones.",
        explanation=(
            "A learned metric is what its weights are. Numbers from other weights can be compared within this run, and "
            "with no paper or other run."
        ),
        do_this="Get the files that `docs/metrics.md` names, or say beside every number which weights it comes from.",
    ),
    "small-gallery": Flag(
        title="Small gallery",
        raised_if="a reconstruction was compared with fewer than 1,000 pictures, or with none.",
        explanation=(
            "To be found among few is easier than among many, and chance alone finds more. Rates from galleries of "
            "different sizes cannot be compared."
        ),
        do_this="Give data with at least 1,000 pictures besides the victims, of the same kind as theirs.",
    ),
    "few-pictures": Flag(
        title="Few pictures",
        raised_if="a verdict rests on fewer than 100 pictures.",
        explanation=(
            "Bounds of rates are exact for any number, but wide: 8 pictures of which none leaked still allow 31 %. "
            "Bootstrap intervals of means are too narrow: at 95 % they were measured to cover 89 % with 8 values, "
            "92 % with 16 and 94.5 % with 100."
        ),
        do_this="Audit more pictures: `images = 300` supports a claim of at most 1 %.",
    ),
    "convergence-not-checked": Flag(
        title="Convergence was not checked",
        raised_if="no attack was also run with twice its steps.",
        explanation="An attack that was stopped early looks like a defense that holds.",
        do_this="Leave `convergence` on (a quick budget switches it off).",
    ),
    "not-converged": Flag(
        title="Twice the steps changed the result",
        raised_if=(
            "with twice the steps an attack leaks more or fewer pictures by over half the width of the interval, or "
            "its loss changes by 1 % or more."
        ),
        explanation="The attack had not reached its end, so what it shows is a lower bound on what leaks.",
        do_this="Raise `steps` or choose `budget = thorough`, until doubling again changes nothing.",
    ),
    "adaptive-weaker": Flag(
        title="Knowing the defense made the attack weaker",
        raised_if="the attacker who knows a defense sees clearly less than the one who does not (95 % confidence).",
        explanation=(
            "Knowledge cannot hurt: who has it can ignore it. The adaptive attack against this defense is badly built "
            "or badly tuned, and a better one may see more than anything shown here."
        ),
        do_this="Mend or tune the adaptive attack (its surrogate, its rate) before concluding anything.",
    ),
    "not-monotone": Flag(
        title="More protection leaked more",
        raised_if=(
            "a stronger setting of a defense, a larger batch or less knowledge leaks clearly more than the weaker one, "
            "beyond both intervals."
        ),
        explanation="This should not happen. The likely cause is an attack that fails at the weaker setting.",
        do_this="Look at the weaker setting: more steps, more restarts, another attack.",
    ),
    "undefended-holds": Flag(
        title="Nothing leaked without a defense",
        raised_if="no picture of the undefended model leaked in an audited scenario.",
        explanation=(
            "Where the attacks see nothing without a defense, they cannot show what a defense is worth. That nothing "
            "leaked with it is then no merit of the defense."
        ),
        do_this="Use stronger attacks or an easier scenario, until the undefended model leaks.",
    ),
    "control-identified": Flag(
        title="A control was identified more often than chance",
        raised_if=(
            "an attack that had not seen a picture's update identified it, or found it among the nearest five or by "
            "features, more often than guessing explains."
        ),
        explanation=(
            "The attack knew something of these pictures before: its prior, the labels, or a gallery unlike them. "
            "Such pictures are not counted as identified, yet the rate of the others may be flattered too."
        ),
        do_this="Choose a gallery of the same kind as the pictures, and look at the prior-only pictures in the report.",
    ),
}


def as_markdown() -> str:
    """The page `docs/flags.md`."""
    head = (
        "# Flags\n\n"
        "A number comes with its doubt. A flag marks a trial, or a whole run, that needs a second look; the report "
        "shows it beside the number, and this page says what it means.\n"
    )
    return head + "".join(_section(name, flag) for name, flag in FLAGS.items())


def _section(name: str, flag: Flag) -> str:
    return (
        f"\n## {name}\n\n**{flag.title}.**\n\n*Raised if* {flag.raised_if}\n\n"
        f"*Explanation.* {flag.explanation}\n\n*Do this.* {flag.do_this}\n"
    )


if __name__ == "__main__":
    print(as_markdown(), end="")
