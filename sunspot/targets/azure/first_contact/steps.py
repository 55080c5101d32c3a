"""Steps that are tried one after the other, each only if those that it needs succeeded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sunspot.errors import SunspotError
from sunspot.targets.azure.doctor.findings import short
from sunspot.targets.contacting import Outcome, Trial
from sunspot.targets.protocol import Progress


class NotTriedError(SunspotError):
    """There is nothing to try; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        name: what it tries.
        run: tries it; its result says what was seen. It raises a SunspotError if that is wrong.
        needs: the names of the steps without whose success it is not tried.
    """

    name: str
    run: Callable[[], str]
    needs: tuple[str, ...] = ()


@dataclass
class Trials:
    """The steps that have been tried. `tell` hears of each as it begins, `changed` after each."""

    tell: Progress
    changed: Callable[[], object]
    done: list[Trial] = field(default_factory=list)

    def run(self, steps: Sequence[Step]) -> None:
        """Tries each of the steps.

        Raises:
            KeyboardInterrupt: as it came, after the rest was noted as not tried.
        """
        for number, step in enumerate(steps):
            try:
                self._try(step)
            except KeyboardInterrupt:
                for one in steps[number:]:
                    self.note(one.name, "not tried", 0.0, "interrupted")
                raise

    def note(self, step: str, outcome: Outcome, seconds: float, detail: str) -> None:
        """Adds a step that has ended."""
        trial = Trial(step=step, outcome=outcome, seconds=round(seconds, 1), detail=short(detail))
        self.done.append(trial)
        self.changed()

    def _try(self, step: Step) -> None:
        lacking = [one for one in step.needs if self._outcome(one) != "ok"]
        if lacking:
            self.note(step.name, "not tried", 0.0, f"it needs: {', '.join(lacking)}")
            return
        self.tell(step.name)
        began = time.monotonic()
        outcome, detail = _outcome_of(step)
        self.note(step.name, outcome, time.monotonic() - began, detail)

    def _outcome(self, name: str) -> Outcome:
        found: list[Outcome] = [one.outcome for one in self.done if one.step == name]
        return found[0] if found else "not tried"


def _outcome_of(step: Step) -> tuple[Outcome, str]:
    outcome: Outcome = "ok"
    try:
        detail = step.run()
    except NotTriedError as error:
        outcome, detail = "not tried", str(error)
    except SunspotError as error:
        outcome, detail = "failed", str(error)
    except Exception as error:  # a fault of ours must not keep the cluster up
        outcome, detail = "failed", f"{type(error).__name__}: {error}"
    return outcome, detail
