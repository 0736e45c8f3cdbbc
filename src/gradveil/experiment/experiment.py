"""From settings to a page: the one way on which an audit, a search, a trade-off study and a training run.

    prepare -> tables, origin -> check the folder -> play: tasks -> records -> outcome -> write: result file, page

What an experiment says of itself is an `Experiment`; all that is the same for all of them is in `run`:

1. `prepare` checks the settings and loads what is needed. Nothing is written before it has returned.
2. `to_tables` becomes config.toml and `origin` provenance.json. A folder that holds another run is refused, and what
   `load_finished` finds in it is the outcome.
3. The folder and its journal are opened (private files, one writer), and a Ray cluster stays connected.
4. `play` computes what is missing. It gives jobs to `runner.each`, which runs them in this process, in others or on
   Ray, and records to `runner.keep`; what is in `runner.done` is not computed again. It calls `progress.begin`.
5. `write` writes the outcome: result file and page, and the seal if the folder has one.

Ctrl-C and a full disk at any point end in one message that says how many results are kept and how to go on
(`RunFolder.interruptible`). A folder of another layout is a subclass of `RunFolder`, named in `folder_type`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from gradveil.core import toml
from gradveil.core.compute import Compute
from gradveil.core.files import private_files, scratch, slug
from gradveil.core.hashes import sha256
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.journal import Journal
from gradveil.experiment.parallel.pool import Pool
from gradveil.experiment.progress import Progress, Silent
from gradveil.experiment.runner import Runner

Outcome = TypeVar("Outcome")
DIGITS = 8  # of the hash in the name of a folder


class Experiment(ABC, Generic[Outcome]):
    """What is computed, and how it is described. `run` calls the methods in the order in which they stand here."""

    folder_type: ClassVar[type[RunFolder]] = RunFolder

    def pool(self, compute: Compute) -> Pool:
        """Where jobs run."""
        return Pool.of(compute)

    def prepare(self, home: RunFolder, compute: Compute, progress: Progress) -> None:
        """Check that it can be done, and load what it needs. Writes nothing into the folder."""

    @abstractmethod
    def to_tables(self) -> Mapping[str, Any]:
        """All that decides about the result, as tables of config.toml. Another value is another run."""

    @abstractmethod
    def origin(self, config: str, compute: Compute) -> Mapping[str, Any]:
        """The content of provenance.json; `config` is the text of config.toml."""

    def load_finished(self, home: RunFolder) -> Outcome | None:
        """The outcome of a finished folder that must stay as it is; None: run what is missing."""
        return None

    @abstractmethod
    def play(self, runner: Runner) -> Outcome:
        """Compute what is missing, keep it, and make the outcome of all records."""

    def closing(self) -> Mapping[str, Any]:
        """What provenance.json says of the end of a run, beside its time."""
        return {}

    def write(self, outcome: Outcome, folder: Path) -> None:
        """Write the result file, the page and the seal."""


def run(
    experiment: Experiment[Outcome],
    folder: str | Path,
    compute: Compute = Compute(),
    progress: Progress | None = None,
) -> Outcome:
    """Run what is missing of the experiment in `folder`; nothing is written before all that can be checked is."""
    folder, shown = Path(folder), progress or Silent()
    home = experiment.folder_type(folder)
    try:
        with home.interruptible(), private_files(), scratch(None):
            experiment.prepare(home, compute, shown)
            config = home.dump(experiment.to_tables())
            origin = experiment.origin(config, compute)
            home.check(config, origin)
            if (finished := experiment.load_finished(home)) is not None:
                return finished
            home.create()
            pool = experiment.pool(compute)
            with (
                Journal(home.journal) as journal,
                scratch(home.user_path) as place,
                compute.active(),
                pool.connected(place),
            ):
                home.prepare(config, origin)
                runner = Runner(home=home, journal=journal, pool=pool, progress=shown, origin=origin)
                outcome = experiment.play(runner)
                home.finish(experiment.closing())  # still the one writer
            experiment.write(outcome, folder)
            return outcome
    finally:
        shown.end()


def default_folder(kind: str, data: str, model: str, settings: Mapping[str, Any]) -> Path:
    """runs/<kind>-<data>-<model>-<hash of all settings>: the same settings go on with the same run."""
    names = slug(f"{kind}-{Path(data).name}-{Path(model).name}")
    return Path("runs") / f"{names}-{sha256(toml.dump(settings).encode())[:DIGITS]}"
