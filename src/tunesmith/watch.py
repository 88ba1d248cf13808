"""What a person sees while a run goes on: a few lines that change in a terminal, a line now and then elsewhere.

Listens to the run's events, which is all it knows; writes to stderr only.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

from tunesmith.budget import Budget, progress
from tunesmith.finals import PROCESSES as FINALS
from tunesmith.journal import Event
from tunesmith.playoff import PROCESSES as PLAYS
from tunesmith.run import Run
from tunesmith.template import Config
from tunesmith.trial import Trial

EVERY_S = 10.0  # between lines where nobody watches
REDRAW_S = 0.1


class Watch:
    """A listener that shows. Use it as a context, so that the terminal is left as it was."""

    def __init__(self, run: Run, *, quiet: bool = False) -> None:
        self.run, self.quiet = run, quiet
        self.budget = Budget.parse(run.begin["budget"])
        self._said_at = self._drawn_at = 0.0
        self._best = run.best.score or 0.0 if run.best else 0.0
        self._live: Any = None
        run.listeners.append(self)

    def __enter__(self) -> Watch:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(self._picture(), console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        with contextlib.suppress(ValueError):
            self.run.listeners.remove(self)

    def __call__(self, event: Event) -> None:
        if self.quiet:
            return
        if text := self._notable(event):
            self._say(text)
        now = time.monotonic()
        if self._live is not None:
            if now - self._drawn_at > REDRAW_S:
                self._live.update(self._picture(), refresh=True)
                self._drawn_at = now
        elif event["event"] == "trial" and now - self._said_at > EVERY_S:
            self._say(self._line())

    def _say(self, text: str) -> None:
        self._said_at = time.monotonic()
        if self._live is not None:
            self._live.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    # -- what is worth a line of its own --

    def _notable(self, event: Event) -> str:
        match event["event"]:
            case "open":
                return f"device    {event['device'].get('id', '')}, {event['device'].get('name', '')}"
            case "tester":
                return f"tester    {event['made']} wrong outputs made, {len(event['accepted'])} accepted"
            case "baseline" if event["status"] != "ok":
                return f"baseline  {event['name']}: {event['reason']}"
            case "opponent":
                times = ", ".join(f"{name} {us:.2f} µs" for name, us in self.run.opponent.time_us.items())  # type: ignore[union-attr]
                return f"baseline  {event['name']}: {times}"
            case "trial" if (event.get("score") or 0.0) > self._best * 1.005:
                self._best = event["score"]
                return f"{self._clock()}  trial {event['number']}: {event['score']:.3f}x  {self._changes()}"
            case "stop":
                return f"search    {len(self.run.trials)} trials in {self.run.seconds:.0f} s; {event['reason']}"
            case "choose":
                return f"chosen    trial {event['general']}; {len(set(event['cells'].values()))} kernel(s) in the table"
            case "verify" if event["status"] != "ok":
                return f"verify    trial {event['trial']} falls on {event['workload']}: {event['reason']}"
        return ""

    def _changes(self) -> str:
        """The best configuration, as far as it differs from its template's default."""
        trial = self.run.best
        if trial is None:
            return ""
        default: Config = next((t["default"] for t in self.run.begin["templates"] if t["name"] == trial.template), {})
        changed = [f"{name}={value}" for name, value in trial.config.items() if default.get(name) != value]
        return " ".join(changed) or "the default"

    def _clock(self) -> str:
        return f"{self.run.seconds:6.1f} s"

    # -- the lines that change --

    def _line(self) -> str:
        best = self.run.best
        score = f"best {best.score:.3f}x" if best is not None and best.score else "nothing right yet"
        return f"{self._clock()}  {len(self.run.trials)} trials, {score}; {self._statuses()}{self._left()}"

    def _statuses(self) -> str:
        return ", ".join(f"{count} {status}" for status, count in self.run.by_status().items())

    def _left(self) -> str:
        """An honest time left: from what of the tightest budget is spent, when anything is known yet."""
        run = self.run
        if self.budget.seconds is not None:
            left = self.budget.seconds - run.seconds
        else:
            share = self.budget.spent(seconds=run.seconds, asked=run.asked, device_s=run.device_s)
            left = run.seconds * (1 / share - 1) if share > 0.02 else -1.0
        return f"; at most {left:.0f} s left" if left >= 0 and not run.stopped else ""

    def _picture(self) -> Any:
        from rich.text import Text

        run = self.run
        lines = [self._phase()]
        if run.trials:
            lines.append(f"  {self._statuses()}{self._left()}")
            lines.append(
                f"  seconds: {run.seconds:.0f} in all, {run.compile_s:.0f} compiling, {run.device_s:.0f} on the device"
            )
        if run.best is not None:
            lines += [f"  {line}" for line in self._beside(run.best)]
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")

    def _phase(self) -> str:
        run = self.run
        if run.plays:
            return f"play-off: process {len(run.plays)} of {PLAYS}"
        if run.choice is not None:
            return f"verifying what was chosen: {len(run.verified)} passed"
        if run.stopped:
            return f"measuring the finalists again: {len(run.finals) // max(1, len(run.weights))} of {FINALS}"
        if run.opponent is None:
            return "measuring the baselines"
        moved = progress(run.trials)
        since = f", last moved at trial {moved[-1][0]}" if moved else ""
        return f"searching: {len(run.trials)} trials, {len(run.in_flight)} under way{since}"

    def _beside(self, best: Trial) -> list[str]:
        assert self.run.opponent is not None
        found = [f"best {best.score:.3f}x (not proven), {best.template}: {self._changes()}"]
        for name, cell in best.cells.items():
            if cell.timing is not None:
                share = f", {cell.target_fraction:.2f} of the target" if cell.target_fraction else ""
                found.append(f"  {name}: {self.run.opponent.time_us[name]:.2f} -> {cell.timing.time_us:.2f} µs{share}")
        return found
