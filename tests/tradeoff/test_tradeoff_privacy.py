"""A study notes what the noise of its trainings is worth."""

from __future__ import annotations

import pytest
from tradeoff_fakes import tiny

from gradveil.dp import epsilon
from gradveil.tradeoff.study import load_study
from gradveil.tradeoff.training import Trainer, Training, record_of

pytest.importorskip("dp_accounting", reason="the extra `dp` is not installed")


def test_a_training_under_dpsgd_notes_its_epsilon_and_others_do_not() -> None:
    study = tiny(defenses=("dpsgd:noise=0.1", "prune:ratio=0.5"), batch_size=50)
    material, models = load_study(study)
    trainer = Trainer(study=study, split=material, models=models)
    plain, *_, private, pruned = study.candidates()
    job = Training(candidate=private, number=0)
    (note,) = record_of(job, trainer(job), 0).notes
    turns = max(int(part.split()[0]) for part in note.split(" steps in ")[1:])
    assert f"{epsilon(noise=0.1, sampling_rate=1.0, rounds=turns, delta=1e-5).value:.4g} by RDP" in note
    assert "at most 100 % identified among 1,001" in note
    for one in (plain, pruned):
        assert not trainer(Training(candidate=one, number=0)).notes
