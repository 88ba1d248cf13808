"""The command line: a thin front over the library. Results go to stdout, everything else to stderr.

With `--json` exactly one object goes to stdout. Exit codes: 0 done, 1 a negative verdict, 2 wrong input, 3 something is
missing here, 130 interrupted. Heavy modules are imported by the verbs that need them.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from tunesmith.errors import Interrupted, MissingError, TunesmithError, UsageError

EVERY_S = 10.0  # between lines of progress that nobody watches
EXIT_VERDICT, EXIT_USAGE, EXIT_MISSING, EXIT_INTERRUPTED = 1, 2, 3, 130


@click.group(
    invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="tunesmith")
@click.pass_context
def cli(context: click.Context) -> None:
    """Refactor a GPU kernel into a template, search its choices, and prove what was won."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")(function)


@cli.command()
@click.option(
    "--calibrate", is_flag=True, help="Measure copy bandwidth, peak rates and launch overhead; kept per device."
)
@click.option("--device", "name", help="Only this one: cuda:0, opencl:0.")
@json_option
def devices(calibrate: bool, name: str | None, as_json: bool) -> None:
    """List the devices that work here, with their limits."""
    from tunesmith import front

    emit(front.devices(name, calibrate=calibrate, progress=Progress(quiet=as_json)), as_json, front.show_devices)


@cli.command()
@click.argument("task", type=click.Path())
@click.argument("templates", nargs=-1, type=click.Path())
@click.option("--config", "config", help="A configuration instead of the default: BLOCK=256,VEC=8.")
@click.option("--device", "device", help="cuda:0 or opencl:0; default the best that is here.")
@click.option("--seed", type=click.IntRange(0), help="Which random data is drawn; default another each time.")
@click.option("--threads", type=click.IntRange(1), help="CPU devices: how many threads; default all.")
@click.option("--no-time", is_flag=True, help="Check only.")
@click.option("--no-callables", is_flag=True, help="Leave out the task's callable baselines.")
@json_option
def check(task: str, templates: tuple[str, ...], config: str | None, device: str | None, seed: int | None, threads: int | None,
          no_time: bool, no_callables: bool, as_json: bool) -> None:  # fmt: skip
    """Build, run and verify the kernels of TASK on every workload; report times, target and resources.

    TEMPLATE files default to those in the task's folder. Exit code 1 where one is wrong.
    """
    from tunesmith import front

    answer = front.check(
        Path(task), [Path(t) for t in templates], config=parse_config(config), device=device, seed=seed, threads=threads,
        timed=not no_time, callables=not no_callables, progress=Progress(quiet=as_json),
    )  # fmt: skip
    emit(answer, as_json, front.show_check)
    if not answer["right"]:
        sys.exit(EXIT_VERDICT)


@cli.command()
@click.argument("template", type=click.Path())
@click.option("--task", "task", type=click.Path(), help="The task folder that says what its names mean.")
@click.option("--dim", "dims", multiple=True, help="A static dim: d=4096. May be repeated.")
@click.option("--type", "types", multiple=True, help="A type symbol: io=bf16. May be repeated.")
@click.option("--arch", help="Also count what a device could not launch: sm_80, sm_90, sm_100.")
@json_option
def space(template: str, task: str | None, dims: tuple[str, ...], types: tuple[str, ...], arch: str | None,
          as_json: bool) -> None:  # fmt: skip
    """Count the configurations of TEMPLATE: all, legal ones, and what each constraint removes. Needs no device."""
    from tunesmith import front

    setting: dict[str, int | str] = {name: whole(name, value) for name, value in map(pair, dims)}
    setting |= dict(map(pair, types))
    emit(front.space(Path(template), Path(task) if task else None, setting, arch), as_json, front.show_space)


@cli.command()
@click.argument("task", type=click.Path(), required=False)
@click.argument("templates", nargs=-1, type=click.Path())
@click.option(
    "--strategy", default="default", help="How the next configuration is chosen: a name, or FILE.py of your own."
)
@click.option("--device", help="cuda:0, opencl:0, recorded:FILE[,FILE] or null:sm_90; default the best that is here.")
@click.option("--baseline", help="What is to be beaten; default the fastest correct one.")
@click.option(
    "--budget", multiple=True, help="5m, 200trials, 60device-s; may be repeated, the first reached ends it. Default 5m."
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Of the strategy.")
@click.option("--run", "run", type=click.Path(), help="The run's folder; default runs/TASK-DATE-N.")
@click.option(
    "--l2",
    type=click.Choice(["cold", "warm"]),
    help="All arguments out of the cache, or in it; default as the task says.",
)
@click.option("--threads", type=click.IntRange(1), help="CPU devices: how many threads; default all.")
@click.option("--max-kernels", type=click.IntRange(1), default=4, help="How many kernels the table may hold.")
@json_option
def search(task: str | None, templates: tuple[str, ...], run: str | None, as_json: bool, **order: Any) -> None:
    """Find the best configurations of TASK's templates, and prove what is claimed.

    TEMPLATE files default to those in the task's folder. A run can be interrupted and gone on with: tunesmith resume.
    """
    from tunesmith import runs
    from tunesmith.campaign import Order

    asked = Order(Path(task) if task else None, [Path(t) for t in templates], run=Path(run) if run else None, **order)
    emit(runs.search(asked, quiet=as_json), as_json, runs.show_result)


@cli.command()
@click.argument("run", type=click.Path())
@json_option
def resume(run: str, as_json: bool) -> None:
    """Go on with RUN where it was."""
    from tunesmith import runs

    emit(runs.resume(Path(run), quiet=as_json), as_json, runs.show_result)


@cli.command()
@click.argument("run", type=click.Path())
@json_option
def replay(run: str, as_json: bool) -> None:
    """Derive the result of RUN again from its journal, without a device."""
    from tunesmith import runs

    emit(runs.replay(Path(run)), as_json, runs.show_result)


@cli.command(name="runs")
@click.argument("folder", type=click.Path(), default="runs")
@json_option
def runs_(folder: str, as_json: bool) -> None:
    """List the runs in FOLDER with their state."""
    from tunesmith import runs

    emit(runs.listed(Path(folder)), as_json, runs.show_listed)


@cli.command()
@click.argument("run", type=click.Path())
@click.argument("trial", type=click.IntRange(1), required=False)
@click.option("--csv", "as_csv", is_flag=True, help="All trials as CSV on stdout, a line each.")
@json_option
def show(run: str, trial: int | None, as_csv: bool, as_json: bool) -> None:
    """Show RUN with its best trials, or one TRIAL whole: source, differences, resources, times."""
    from tunesmith import runs

    if as_csv:
        click.echo(runs.trials_as_csv(Path(run)), nl=False)
        return
    emit(runs.show(Path(run), trial), as_json, runs.show_shown)


@cli.command()
@click.argument("result", type=click.Path())
@click.option("--device", help="cuda:0 or opencl:0; default the best that is here.")
@click.option("--threads", type=click.IntRange(1), help="CPU devices: how many threads; default as it was measured.")
@json_option
def prove(result: str, device: str | None, threads: int | None, as_json: bool) -> None:
    """Play the table of RESULT off again here. Exit code 1 where a row no longer holds."""
    from tunesmith import prove as proving
    from tunesmith import runs

    answer = proving.prove(Path(result), device=device, threads=threads, progress=Progress(quiet=as_json))
    emit(answer, as_json, runs.show_proved)
    if not answer["holds"]:
        sys.exit(EXIT_VERDICT)


@cli.command()
@click.option("--clear", is_flag=True, help="Remove what compilers made.")
@json_option
def cache(clear: bool, as_json: bool) -> None:
    """Say what is cached on this machine and how large it is."""
    from tunesmith import runs

    emit(runs.cache(clear=clear), as_json, runs.show_cache)


# --- forms of input ----------------------------------------------------------------------------------------------------


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value.strip()


def whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{name} = {value!r} is not a whole number") from None


def parse_config(text: str | None) -> dict[str, int | str] | None:
    """`BLOCK=256,LOAD=ldg`: whole numbers where they are, else names."""
    if text is None:
        return None
    pairs = [pair(part) for part in text.split(",") if part.strip()]
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--config gives {twice[0]!r} twice")
    return {name: int(value) if value.lstrip("+-").isdigit() else value for name, value in pairs}


# --- output ------------------------------------------------------------------------------------------------------------


class Progress:
    """What is being done, on stderr: a line that is rewritten in a terminal, now and then a line elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self.said_at = 0.0

    def __call__(self, text: str) -> None:
        if self.quiet or not (self.live or time.monotonic() - self.said_at > EVERY_S):
            return
        self.said_at = time.monotonic()
        sys.stderr.write(f"\r\033[K{text}" if self.live else f"{text}\n")
        sys.stderr.flush()

    def done(self) -> None:
        if self.live and not self.quiet:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def emit(answer: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    if as_json:
        click.echo(json.dumps(answer))
    else:
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
        show(answer)


@contextlib.contextmanager
def reported(as_json: bool) -> Iterator[None]:
    """Errors as one message and an exit code; with `--json`, as the one object."""
    try:
        yield
    except click.ClickException as error:
        fail(error.format_message(), "", EXIT_USAGE, as_json)
    except click.exceptions.Abort:
        fail("interrupted", "", EXIT_INTERRUPTED, as_json)
    except KeyboardInterrupt:
        fail("interrupted", "", EXIT_INTERRUPTED, as_json)
    except Interrupted as error:
        fail(error.message, error.hint, EXIT_INTERRUPTED, as_json)
    except MissingError as error:
        fail(error.message, error.hint, EXIT_MISSING, as_json)
    except TunesmithError as error:
        fail(error.message, error.hint, EXIT_USAGE, as_json)


def fail(message: str, hint: str, code: int, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": message, **({"hint": hint} if hint else {})}))
    else:
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
        click.echo(f"error: {message}", err=True)
        if hint:
            click.echo(f"hint: {hint}", err=True)
    sys.exit(code)


def main() -> None:
    """Run the command line."""
    with reported("--json" in sys.argv[1:]):
        cli.main(standalone_mode=False)
