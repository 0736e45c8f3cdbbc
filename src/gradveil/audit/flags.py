"""Doubts about a number: each flag has a title, when it is raised, why it matters and what to do.

The report prints these texts and `docs/flags.md` is made of them: `python -m gradveil.audit.flags > docs/flags.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["note", "doubt", "serious"]
MOST_SERIOUS_FIRST: tuple[Severity, ...] = ("serious", "doubt", "note")


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One doubt. `raised_if` completes "Raised if".

    `severity`: a note says how something was done; a doubt asks for a second look; a serious one about an attack, a
    defense or the run forbids "no leak found" of what it is about.
    """

    title: str
    raised_if: str
    explanation: str
    do_this: str
    severity: Severity = "doubt"


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
        severity="serious",
        raised_if="the attacker's loss was still falling when its steps ran out, or never fell at all.",
        explanation=(
            "The reconstruction is a snapshot of an unfinished search. A patient attacker would go on, so the scores "
            "of this trial are a lower bound on what leaks."
        ),
        do_this="Double `steps` (or raise `restarts`) until doubling again does not move the scores.",
    ),
    "fallback-backend": Flag(
        title="A slower back end was used",
        severity="note",
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
        severity="serious",
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
        severity="note",
        raised_if="two pictures of one batch carry the same label.",
        explanation=(
            "Gradients of pictures with the same label overlap, so they are harder to tell apart, and label inference "
            "from signs no longer holds. Batches with distinct labels may leak more."
        ),
        do_this="Audit batches with distinct labels as well, or a batch size of 1, which bounds both cases.",
    ),
    "no-diagnostic": Flag(
        title="No defense was audited where an attack has it easiest",
        severity="note",
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
        severity="note",
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
        severity="note",
        raised_if="every audited scenario has the same number of pictures per client.",
        explanation="Smaller batches usually leak more, and the last batch of a client is often a small one.",
        do_this="Add sizes, 1 among them: `also.batch_size = [1, 4]`.",
    ),
    "single-local-steps": Flag(
        title="One number of local steps only",
        severity="note",
        raised_if="every audited scenario takes the same number of local steps.",
        explanation="One step (FedSGD) and several (FedAvg) leak differently; an attack can fit one and not the other.",
        do_this="Add the other: `also.local_steps = [1, 5]`.",
    ),
    "no-ablation": Flag(
        title="What the attacker knows was not varied",
        severity="note",
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
    "few-seeds": Flag(
        title="Few random seeds",
        severity="note",
        raised_if="fewer than 3 seeds of the attacks or fewer than 2 models were audited.",
        explanation=(
            "An attack starts at random, noise is drawn at random, and so are the weights of an untrained model. One "
            "draw may be lucky or unlucky, and the intervals of this run say nothing of another."
        ),
        do_this=(
            "Add seeds: `also.attack_seed = [1, 2]` and `also.model_seed = [1]` (or `also.weights` with another "
            "training), and compare the scenarios."
        ),
    ),
    "chosen-pictures": Flag(
        title="The pictures were chosen",
        raised_if='the victims are the first pictures of the data (`draw = "first"`) and no random sample.',
        explanation=(
            "An interval or a bound says what holds for the pictures that a sample was drawn from. Of chosen pictures "
            "it says nothing beyond these pictures."
        ),
        do_this='Leave `draw` at "seed", unless these pictures are all that the question is about.',
    ),
    "tuned-less": Flag(
        title="Attacks were tuned less on a defense",
        raised_if="fewer settings of attacks were tried on a defense than on the undefended model (`tuned_on`).",
        explanation=(
            "An attack that was tuned where there is no defense fits that case. That it sees less under a defense may "
            "then be a matter of its settings."
        ),
        do_this="Try at least as many settings on every defense, and name those runs in `tuned_on` as well.",
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
        severity="serious",
        raised_if="no attack was also run with twice its steps.",
        explanation="An attack that was stopped early looks like a defense that holds.",
        do_this="Leave `convergence` on (a quick budget switches it off).",
    ),
    "not-converged": Flag(
        title="Twice the steps changed the result",
        severity="serious",
        raised_if=(
            "with twice the steps an attack leaks more or fewer pictures by over half the width of the interval, or "
            "its loss changes by 1 % or more."
        ),
        explanation="The attack had not reached its end, so what it shows is a lower bound on what leaks.",
        do_this="Raise `steps` or choose `budget = thorough`, until doubling again changes nothing.",
    ),
    "adaptive-weaker": Flag(
        title="Knowing the defense made the attack weaker: an error of gradveil",
        severity="serious",
        raised_if="the attacker who knows a defense sees clearly less than the one who does not (99 % confidence).",
        explanation=(
            "Knowledge cannot hurt: who has it can ignore it. The informed attacker has the result of the one who does "
            "not know the defense and keeps, picture by picture, whatever explains the update better. That it kept the "
            "worse is a fault of gradveil, not of your settings, and a better choice may see more than is shown here."
        ),
        do_this=(
            "Report it to gradveil with the run's config.toml. Until it is mended, count the unaware attacker's result."
        ),
    ),
    "not-monotone": Flag(
        title="More protection leaked more",
        severity="serious",
        raised_if=(
            "a stronger setting of a defense, a larger batch or less knowledge leaks clearly more than the weaker one, "
            "beyond both intervals."
        ),
        explanation="This should not happen. The likely cause is an attack that fails at the weaker setting.",
        do_this="Look at the weaker setting: more steps, more restarts, another attack.",
    ),
    "undefended-holds": Flag(
        title="Nothing leaked without a defense",
        severity="serious",
        raised_if="no picture of the undefended model leaked in an audited scenario.",
        explanation=(
            "Where the attacks see nothing without a defense, they cannot show what a defense is worth. That nothing "
            "leaked with it is then no merit of the defense."
        ),
        do_this="Use stronger attacks or an easier scenario, until the undefended model leaks.",
    ),
    "control-identified": Flag(
        title="A control was identified more often than chance",
        severity="serious",
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
    "several-versions": Flag(
        title="Several versions of gradveil wrote this run",
        severity="note",
        raised_if="a run was resumed by another version than the one that began it.",
        explanation=(
            "An attack, a defense or a metric may have changed between the versions. Then trials of one cell are not "
            "computed alike, and their rates and means mix two experiments. `versions` in provenance.json names them."
        ),
        do_this="If a number decides anything, run the audit again from the start with one version.",
    ),
    "sealed-again": Flag(
        title="The seal was missing or broken",
        severity="serious",
        raised_if=(
            "the run had been finished, and when it was resumed or its report was made again, `seal.json` was missing "
            "or files had changed since they were sealed."
        ),
        explanation=(
            "A seal shows that the journal is as the run left it. This one was made later, so that a record that was "
            "changed or removed before then would not be noticed. `sealed_again` in provenance.json says when it was "
            "made, by what, and what was missing or had changed."
        ),
        do_this=(
            "Compare with a copy of the run, or with the id of its first seal if you noted it; otherwise run the audit "
            "again. `gradveil reproduce-cell` computes single trials again."
        ),
    ),
    "zeros-in-update": Flag(
        title="The defense sends zeros or numbers that are not finite",
        raised_if=(
            "a defended update has at least 10 percentage points more exact zeros than the undefended one, or a number "
            "that is infinite or not a number."
        ),
        explanation=(
            "An attack that matches whole updates spends its effort on zeros that the picture did not make, and may "
            "fail for that reason alone. What was sent between the zeros can still give the picture away."
        ),
        do_this=(
            "Look at the adaptive attacker, whose copy of the defense leaves out or repeats the zeros. If the defense "
            "has none, give it a `surrogate` before concluding anything."
        ),
    ),
    "changes-with-each-draw": Flag(
        title="The update differs from one draw to the next",
        severity="note",
        raised_if="the same client, with the same pictures and model, sends another update when it draws again.",
        explanation=(
            "An attack that follows one draw follows its noise too. Randomness often stops a search without hiding "
            "anything: averaged over draws it can disappear."
        ),
        do_this=(
            "Let the adaptive attacker average over 10 draws or more in its own copy of the client (expectation over "
            "transformation, EOT), such as `precode.draws = 16`, or watch more rounds with `rounds = 10`."
        ),
    ),
    "no-slope": Flag(
        title="The attack cannot follow a slope",
        severity="serious",
        raised_if=(
            "in the adaptive attacker's copy of the client, or in the plain one, the match of the updates does not "
            "change with the pixels (its derivative is zero), or changes by numbers that are not finite."
        ),
        explanation=(
            "Rounding, signs and lookups have no slope. A gradient search that meets one stands still and looks like "
            "a defense that holds."
        ),
        do_this="Give the defense a `surrogate` that has a slope at that stage (BPDA), or search without slopes.",
    ),
    "gradient-attack-weaker": Flag(
        title="An attack without slopes sees more than one with",
        raised_if=(
            "of the same defended pictures an attack without gradient search (closed form, learned, decoding) recovers "
            "clearly more than every gradient search does, though not without the defense."
        ),
        explanation=(
            "The information is there, and the gradient searches fail to use it: the defense disturbs the search and "
            "not the leak."
        ),
        do_this="Judge the defense by the stronger attack, and mend the surrogate or the settings of the search.",
    ),
    "truth-explains-less": Flag(
        title="The truth explains the update less than the reconstruction does",
        severity="serious",
        raised_if=(
            "in the copy of the client that an attacker who knows the defense runs, a reconstruction explains more of "
            "an update than the true pictures do, by at least 2 percentage points."
        ),
        explanation=(
            "A search that minimizes this match is led away from the truth: the attacker's client is not the real one. "
            "What it fails to see says nothing about the defense."
        ),
        do_this="Compare the defense's `surrogate` with the defense; docs/oracle.md has the numbers of those shipped.",
    ),
    "line-up-off": Flag(
        title="The update is not what its picture makes",
        severity="serious",
        raised_if=(
            "an update is much farther from, or nearer to, what its own picture makes than the noise of the defense as "
            "configured explains."
        ),
        explanation=(
            "The line-up guesses by the defense as configured. Here the updates come from something else: another "
            "strength, another model, another picture, or numbers that were changed on the way. That the line-up names "
            "few, or that the noise has a certificate, then says nothing about these updates."
        ),
        do_this="Compare defense, strength, model and pictures with what the clients really ran, and audit again.",
    ),
    "line-up-not-replayed": Flag(
        title="The client of the line-up sends another update",
        severity="serious",
        raised_if="a client with the same picture and the same random numbers sends another update than was received.",
        explanation=(
            "The line-up plays the client itself. If it does not send what was received, the line-up asks about "
            "another update than the one that left, and naming few means nothing."
        ),
        do_this="Look for what the client does beyond the settings, or for updates that were mixed up on their way.",
    ),
    "line-up-bound": Flag(
        title="The line-up was told what the attacker does not know",
        severity="note",
        raised_if=(
            "a defense mixes a picture with others and the line-up was told with which and by how much, or the "
            "attacker has to infer the label and the line-up was told it."
        ),
        explanation=(
            "No likelihood can be computed without that. A guesser who knows less names at most as many, so that the "
            "share is an upper bound."
        ),
        do_this="Read the share as an upper bound.",
    ),
    "line-up-estimated": Flag(
        title="The likelihood of the line-up is estimated",
        severity="note",
        raised_if="what a defense draws has no likelihood in closed form, so that it was simulated.",
        explanation=(
            "A guesser with the exact likelihood may name more. What is named is named, but a low share bounds nothing."
        ),
        do_this="Do not read a low share as protection.",
    ),
    "line-up-beside": Flag(
        title="More than the update leaves the client",
        severity="note",
        raised_if="statistics of normalization leave too (`batchnorm = batch-shared`), or encodings are published.",
        explanation=(
            "The line-up guesses by the update alone. What leaves beside it has no noise and may name the picture, so "
            "a low share bounds nothing. What is named is named."
        ),
        do_this="Keep statistics in the clients (`batchnorm = batch`) and encodings to yourself.",
    ),
    "attack-above-line-up": Flag(
        title="Attacks identify more than the line-up allows",
        severity="serious",
        raised_if=(
            "attacks identify surely more pictures than as many best guesses of the line-up, with or without the label "
            "(both 95 % intervals apart)."
        ),
        explanation=(
            "No guess is better on average than the most likely candidate, if the pictures are like those of the "
            "gallery. Either the likelihood is wrong, or the attacks know more of these pictures than of the gallery."
        ),
        do_this=(
            "Choose a gallery of the same kind as the pictures. If that is no reason, report a bug with the run: the "
            "line-up bounds nothing here."
        ),
    ),
    "leaks-and-bounded": Flag(
        title="A picture leaked where nearly none can be named",
        severity="serious",
        raised_if="the word of a defense is *leaks*, and its line-up or certificate alone would give *bounded*.",
        explanation=(
            "The leak counts. Of hundreds of pictures one may be found by luck and within the bound; otherwise the "
            "bound is wrong: updates without the noise that was configured, or pictures that the attacker knew before."
        ),
        do_this="Look at the pictures that leaked. Check that the noise is added and that the gallery fits them.",
    ),
}


def as_markdown() -> str:
    """The page `docs/flags.md`."""
    head = (
        "# Flags\n\n"
        "A number comes with its doubt. A flag marks a trial, or a whole run, that needs a second look; the report "
        "shows it beside the number, and this page says what it means.\n\n"
        "A *note* says how something was done or what was not varied. A *doubt* asks for a second look. A *serious* "
        'flag about most trials of an attack, about a defense or about the run forbids "no leak found" there.\n'
    )
    return head + "".join(_section(name, flag) for name, flag in FLAGS.items())


def _section(name: str, flag: Flag) -> str:
    return (
        f"\n## {name}\n\n**{flag.title}.** ({flag.severity})\n\n*Raised if* {flag.raised_if}\n\n"
        f"*Explanation.* {flag.explanation}\n\n*Do this.* {flag.do_this}\n"
    )


if __name__ == "__main__":
    print(as_markdown(), end="")
