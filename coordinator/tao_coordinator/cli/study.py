"""`tao study`: the papers' studies and the product's own, on modelled engines."""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tao_coordinator.cli.seeds import read_seeds
from tao_coordinator.errors import ConfigurationError

if TYPE_CHECKING:
    from tao_coordinator.study.study import Outcome, StudyOptions


EXIT_INCOMPLETE = 1


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "study", help="compare policies on modelled engines: the papers' tables and our own"
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="say which studies there are")
    listing.add_argument("--json", action="store_true", help="print them as JSON")
    listing.set_defaults(run=run_list)
    runs = actions.add_parser(
        "run",
        help="run a study",
        description=(
            "Runs every cell of a study (one policy, one workload, one seed) in virtual time on "
            "all cores and writes NAME/report.md, report.json and plots. Interrupted, it goes on "
            "with --resume where it stopped. A run that fails or hangs is told, with its traceback "
            "in NAME/failures.log, and the others go on; the exit status is 1 then."
        ),
    )
    runs.add_argument("name", metavar="NAME", nargs="+", help="see `tao study list`; or `all`")
    runs.add_argument(
        "--seeds", default="101,102,103", help="comma-separated numbers (default %(default)s)"
    )
    runs.add_argument("--jobs", type=int, help="processes (default: one per core)")
    runs.add_argument(
        "--cell-limit",
        type=float,
        default=3_600.0,
        metavar="S",
        help="give a run up that takes longer (default %(default)s)",
    )
    runs.add_argument(
        "--out", type=Path, default=Path("study"), metavar="DIR", help="default: ./%(default)s"
    )
    begin = runs.add_mutually_exclusive_group()
    begin.add_argument("--resume", action="store_true", help="keep the results that are there")
    begin.add_argument("--fresh", action="store_true", help="throw the results that are there away")
    runs.add_argument(
        "--trace",
        action="append",
        default=[],
        metavar="WORKLOAD=PATH",
        help="use recorded sessions for the workload of this name (swe, agentx, ...); repeatable",
    )
    runs.add_argument(
        "--share",
        type=float,
        default=1.0,
        metavar="X",
        help="run only this share of the sessions of each cell: quicker, noisier",
    )
    runs.add_argument("--no-plots", action="store_true", help="leave out the PNG plots")
    runs.add_argument("--json", action="store_true", help="print report.json instead of report.md")
    runs.set_defaults(run=run)


def run_list(arguments: argparse.Namespace) -> int:
    """Run `tao study list`."""
    from tao_coordinator.study.studies import STUDIES
    from tao_coordinator.study.study import StudyOptions

    counts = {name: len(study.make_cells(StudyOptions())) for name, study in STUDIES.items()}
    if arguments.json:
        facts = [
            {"name": name, "title": study.title, "asks": study.asks, "runs": counts[name]}
            for name, study in STUDIES.items()
        ]
        print(json.dumps(facts, indent=2))
        return 0
    for name, study in STUDIES.items():
        print(f"{name:22} {counts[name]:4} runs   {study.title}")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Run `tao study run`."""
    from tao_coordinator.study.studies import STUDIES
    from tao_coordinator.study.study import find

    names: list[str] = arguments.name
    if names == ["all"]:
        names = list(STUDIES)
    studies = [find(STUDIES, name) for name in names]
    options = _options(arguments)
    _require_known(options.traces)
    if not arguments.no_plots:
        _require_matplotlib()
    for study in studies:
        folder: Path = arguments.out / study.name
        cells_path = folder / "cells.jsonl"
        if cells_path.exists() and not (arguments.resume or arguments.fresh):
            raise ConfigurationError(
                f"{folder} has results already: --resume goes on from them, --fresh begins anew"
            )
    are_whole = [_run_one(arguments, options, study.name) for study in studies]
    return 0 if all(are_whole) else EXIT_INCOMPLETE


def _run_one(arguments: argparse.Namespace, options: "StudyOptions", name: str) -> bool:
    """Run one study and write it down; whether every cell has a result."""
    from tao_coordinator.study import report, sweep
    from tao_coordinator.study.studies import STUDIES
    from tao_coordinator.study.study import Outcome

    study = STUDIES[name]
    folder: Path = arguments.out / name
    cells = study.make_cells(options)
    kept = sweep.ResultFile(folder / sweep.RESULTS_NAME, resume=arguments.resume)
    failures = folder / "failures.log"
    failures.unlink(missing_ok=True)
    try:
        sweep.sweep(
            cells,
            kept,
            jobs=arguments.jobs or sweep.default_jobs(),
            report=lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True),
            limit_s=arguments.cell_limit,
        )
    except KeyboardInterrupt:
        number = len(kept.known)
        print(f"tao: {name}: interrupted; --resume goes on from {number} results", file=sys.stderr)
        raise
    except sweep.CellsFailed as error:
        failures.write_text(error.details(), encoding="utf-8")
        print(f"tao: {name}: {error}; see {failures}, --resume runs them again", file=sys.stderr)
    done = [cell for cell in cells if cell.cell_id in kept.known]
    results = [kept.known[cell.cell_id] for cell in done]
    outcome = Outcome(study, options, done, results, num_failed=len(cells) - len(done))
    command = _command(arguments, name)
    pictures = [] if arguments.no_plots or not done else _draw(outcome, folder)
    text = report.markdown(outcome, command, pictures)
    facts = json.dumps(report.as_json(outcome, command), indent=1)
    (folder / "report.md").write_text(text, encoding="utf-8")
    (folder / "report.json").write_text(facts + "\n", encoding="utf-8")
    print(facts if arguments.json else text)
    print(f"tao: wrote {folder / 'report.md'}", file=sys.stderr)
    return len(done) == len(cells)


def _draw(outcome: "Outcome", folder: Path) -> list[str]:
    from tao_coordinator.study import plots

    return plots.draw(outcome, folder)


def _require_matplotlib() -> None:
    """Fail before hours of work, not after."""
    try:
        import matplotlib as _  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigurationError(
            'plots need matplotlib: pip install "tao-client[study]", or pass --no-plots'
        ) from None


def _options(arguments: argparse.Namespace) -> "StudyOptions":
    from tao_coordinator.study.study import StudyOptions
    from tao_coordinator.traces import files

    if arguments.jobs is not None and arguments.jobs < 1:
        raise ConfigurationError("--jobs must be at least 1")
    if not arguments.cell_limit > 0.0:
        raise ConfigurationError("--cell-limit must be above 0")
    if not 0.0 < arguments.share <= 1.0:
        raise ConfigurationError("--share must be above 0 and at most 1")
    traces: dict[str, str] = {}
    for text in arguments.trace:
        name, middle, path = str(text).partition("=")
        if not middle or not Path(path).exists():
            raise ConfigurationError(f"--trace {text}: WORKLOAD=PATH, and the path must exist")
        traces[name] = path
    return StudyOptions(
        seeds=read_seeds(arguments.seeds),
        traces=traces,
        trace_digests={name: files.digest(Path(path)) for name, path in traces.items()},
        share=arguments.share,
    )


def _require_known(workloads: Iterable[str]) -> None:
    """Refuse what no study runs; what only others run is left unused: the flags can stay."""
    from tao_coordinator.study.studies import STUDIES
    from tao_coordinator.study.study import StudyOptions

    wanted = set(workloads)
    if not wanted:
        return
    studies = STUDIES.values()
    known = {cell.workload.name for study in studies for cell in study.make_cells(StudyOptions())}
    for name in sorted(wanted - known):
        raise ConfigurationError(
            f"--trace {name}=...: no such workload; studies run {', '.join(sorted(known))}"
        )


def _command(arguments: argparse.Namespace, name: str) -> str:
    parts = [f"tao study run {name} --seeds {arguments.seeds}"]
    parts += [f"--trace {text.partition('=')[0]}=..." for text in arguments.trace]
    if arguments.share != 1.0:
        parts.append(f"--share {arguments.share:g}")
    return " ".join(parts)
