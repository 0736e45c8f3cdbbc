"""The defense to deploy: it costs least of those whose own trained models hold the limit too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradveil.experiment.runner import Runner
from gradveil.recommend.lineups import PLAIN, LineUps
from gradveil.recommend.outcome import Advised
from gradveil.recommend.settings import RecommendSettings
from gradveil.tradeoff.defenses import Candidate
from gradveil.tradeoff.outcome import Point
from gradveil.tradeoff.points import points_of
from gradveil.tradeoff.runner import StudyRunner

TRIES = 3  # strengths that a defense is trained with, each stronger than the one before


@dataclass(kw_only=True)
class Chooser:
    """Trains the calibrated defenses and looks at the cheapest first.

    A model that was trained under a defense may send longer updates than the untrained one. Then the strength is found
    anew on it, the model is trained with that one, and it is looked at again.
    """

    settings: RecommendSettings
    runner: Runner
    work: StudyRunner
    lineups: LineUps

    def train(self, advised: Sequence[Advised]) -> list[Advised]:
        """With what each costs; those that do not reach the limit are not trained."""
        candidates = [PLAIN, *(one.candidate for one in advised if one.reached)]
        self.work.expect(candidates)
        self.work.train(candidates, range(self.settings.seeds))
        return self.locate(advised)

    def choose(self, advised: Sequence[Advised]) -> tuple[list[str], list[Advised]]:
        """Labels of the winners, and everything that was found on the way."""
        found = {one.label: one for one in advised}
        open_, winners = {label: cost for label, one in found.items() if (cost := one.cost) is not None}, []
        while open_ and len(winners) < self.settings.winners:
            label = min(open_, key=lambda name: (open_[name], name))
            if open_.pop(label) > self.settings.spare:
                break
            one = found[label] = self.look(found[label])
            if one.holds(self.settings.named_at_most):
                winners.append(label)
            elif (stronger := self.try_again(one)) is not None:
                found[label] = stronger
                open_ |= {} if stronger.cost is None else {label: stronger.cost}
        return winners, list(found.values())

    def look(self, one: Advised) -> Advised:
        return replace(one, after=self.lineups.hold_trained(self.runner, one))

    def try_again(self, one: Advised) -> Advised | None:
        """Stronger, trained anew; None after a few times, or where nothing is strong enough."""
        if one.again + 1 >= TRIES or (stronger := self.lineups.strengthen(self.runner, one)) is None:
            return None
        return self.train([stronger])[0]

    def locate(self, advised: Sequence[Advised]) -> list[Advised]:
        """With what each costs in accuracy and leaks, as far as it is known."""
        points = self.points([one.candidate for one in advised if one.reached])
        return [replace(one, point=points.get(one.name)) if one.reached else one for one in advised]

    def points(self, candidates: Sequence[Candidate] = ()) -> dict[str, Point]:
        """Of no defense, and of these."""
        study = self.work.trainer.study
        found = points_of(study, [PLAIN, *candidates], self.work.trainings(), self.work.audits())
        return {point.label: point for point in found}
