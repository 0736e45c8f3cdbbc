"""The line-ups of a recommendation: of the untrained model for every family, of its own trained models for a winner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gradveil.audit.schedule import place
from gradveil.calibrate.bench import Bench, make_bench
from gradveil.calibrate.family import Family
from gradveil.calibrate.measure import Calibrator, calibrate_family
from gradveil.calibrate.outcome import Calibrated, Step
from gradveil.core.choice import Choice
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.experiment.runner import Runner
from gradveil.lineup.candidates import Gallery
from gradveil.recommend.outcome import Advised
from gradveil.recommend.settings import RecommendSettings
from gradveil.tradeoff.defenses import Candidate
from gradveil.tradeoff.leakage import Auditor
from gradveil.tradeoff.split import choose_gallery

PLAIN = Candidate(label="none", choice=Choice(name="none"), role="none")
ROOM = 0.8  # of the limit is aimed at, so that other models and draws hold the limit too


@dataclass(frozen=True, kw_only=True)
class LineUps:
    """Held on the victims of the first training, among its other pictures."""

    settings: RecommendSettings
    auditor: Auditor

    @property
    def stages(self) -> tuple[int, ...]:
        """Rounds after which trained models are looked at."""
        return tuple(stage for stage in self.auditor.study.attacked_rounds() if stage)

    def untrained(self) -> Bench:
        return next(self.benches(PLAIN, (0,)))

    def benches(self, candidate: Candidate, stages: Sequence[int]) -> Iterator[Bench]:
        """Of a candidate's own models."""
        auditor, hidden = self.auditor, self.auditor.victims()
        compared = choose_gallery(auditor.split, hidden)
        size = self.settings.lineup - 1
        gallery = Gallery(images=compared.images[:size], labels=compared.labels[:size])
        config = auditor.study.audit_config(candidate)
        for stage in stages:
            scenario = place(auditor.scenario(config, candidate, hidden, 0, stage), auditor.compute)
            yield make_bench(scenario, gallery, self.settings.standins, Seed(self.settings.seed).at("recommend", stage))

    def calibrate(self, runner: Runner, label: str, family: Family, bench: Bench) -> Advised:
        """Its strength on the untrained model; with the reason where it has none."""
        try:
            found = calibrate_family(
                runner, bench, family, ROOM * self.settings.named_at_most, label=label, curve=False
            )
        except ConfigError as error:
            return Advised(label=label, family=family, reason=error.message)
        return Advised(label=label, family=family, found=found)

    def hold_trained(self, runner: Runner, one: Advised) -> dict[str, Step]:
        """By round, the line-up of its own trained models at its strength."""
        assert one.strength is not None
        return {f"round {stage}": self._calibrator(runner, one, stage, bench).measure(one.strength.strength)
                for stage, bench in self._pair_stages(one)}  # fmt: skip

    def strengthen(self, runner: Runner, one: Advised) -> Advised | None:
        """At the strength that is enough on its own trained models too; None: no strength is."""
        assert one.found is not None
        strongest = one.found
        for stage, bench in self._pair_stages(one):
            found = self._calibrator(runner, one, stage, bench).find()
            if not found.reached:
                return None
            strongest = _stronger(one.family, strongest, found)
        if strongest is one.found:
            return None
        return replace(one, found=strongest, again=one.again + 1, after={}, point=None)

    def _pair_stages(self, one: Advised) -> Iterator[tuple[int, Bench]]:
        yield from zip(self.stages, self.benches(one.candidate, self.stages), strict=True)

    def _calibrator(self, runner: Runner, one: Advised, stage: int, bench: Bench) -> Calibrator:
        label, limit = f"{one.name}-round-{stage}", ROOM * self.settings.named_at_most
        return Calibrator(runner=runner, bench=bench, family=one.family, label=label, limit=limit, curve=False)


def _stronger(family: Family, one: Calibrated, other: Calibrated) -> Calibrated:
    """By the order of the ladder."""
    assert one.enough is not None
    assert other.enough is not None
    values = [found.enough.strength for found in (one, other) if found.enough is not None]
    if family.strength is None:
        return one
    if family.strength.grows:
        return other if values[1] > values[0] else one
    first, second = map(family.ladder.index, values)
    return other if second > first else one
