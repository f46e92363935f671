"""The report of a study: one HTML file that opens anywhere, and beside it every table as CSV and LaTeX, every picture as PNG and PDF."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from offcut.core.extras import absent, is_installed
from offcut.studies.definition import Definition
from offcut.studies.entries import CALL
from offcut.studies.environment import read_environments
from offcut.studies.results import Results, results_of
from offcut.studies.samples import Sample
from offcut.studies.statistics import is_of_one_process
from offcut.studies.table import Table, as_csv, as_html, as_latex, plural
from offcut.studies.tables import tables
from offcut.studies.user_objects import absent_lines

_STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1.2em 0;font-size:13px;display:block;overflow-x:auto}
caption{text-align:left;font-weight:600;padding:.3em 0}th,td{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:left}
.n{text-align:right;font-variant-numeric:tabular-nums}.warn{background:#fff3cd;padding:.6em 1em}img{max-width:100%}pre{font-size:12px;overflow-x:auto}"""


def write_report(
    definition: Definition, samples: Mapping[str, Sample], folder: Path
) -> tuple[Table, ...]:
    """Write a study's tables, pictures and report, and return the tables; without matplotlib, the report says what is missing."""
    results = results_of(definition, samples)
    facts = [f"study {definition.name}", *environment_lines(results, folder)]
    facts += warnings(results, samples)
    report_tables = tables_of(results)
    for table in report_tables:
        (folder / f"{table.name}.csv").write_text(as_csv(table, facts), encoding="utf-8")
        (folder / f"{table.name}.tex").write_text(as_latex(table, facts), encoding="utf-8")
    pictures: list[Path] = []
    if is_installed("matplotlib"):
        from offcut.studies.figures import write_figures

        pictures = write_figures(results, folder)
    (folder / "report.html").write_text(
        _page(results, report_tables, pictures, facts, folder), encoding="utf-8"
    )
    return report_tables


def tables_of(results: Results) -> tuple[Table, ...]:
    """Return the tables that have rows."""
    return tuple(one for one in tables(results) if one.rows)


def environment_lines(results: Results, folder: Path) -> list[str]:
    """Return a line for each environment: machine, system, commit, libraries; and one for variables that hold these back."""
    lines = []
    for one in read_environments(folder, results.environments):
        commit = one["commit"][:12] or "no commit"
        dirty = " with changes" if one["dirty"] else ""
        libraries = ", ".join(f"{name} {version}" for name, version in one["libraries"].items())
        lines.append(
            f"machine: {one['machine']} · {one['system']} · governor {one['governor']} · LLVM {one['llvm']} · {commit}{dirty} · {libraries}"
        )
        if forced := one.get("forced"):
            variables = ", ".join(f"{name}={value}" for name, value in forced.items())
            lines.append(
                f"HELD BACK: {variables}: libraries ran the kernels of another processor; offcut study, from a shell, unsets that"
            )
    return lines


def warnings(results: Results, samples: Mapping[str, Sample]) -> list[str]:
    """Return what a reader of the figures has to know: load, several environments, cells that are missing or not of this file."""
    sentences = absent_lines(results.definition.absent)
    every = [one for one in results.samples if one.seconds]
    if results.loaded:
        least = min(one.load.get("share", 1.0) for one in every)
        sentences.append(
            f"LOADED: {results.loaded} of {len(every)} cells were measured while others used the processor, or a contender waited (this process had {least:.0%} of it at the least): "
            "what that changes from process to process is in their intervals, and of cells in one process fewer rounds count"
        )
    single = sum(map(is_of_one_process, every))
    if single:
        sentences.append(
            f"{single} of {len(every)} cells were timed in one process: what differs from one process to the next is not in their intervals"
        )
    if len(results.environments) > 1:
        sentences.append(
            f"cells are from {len(results.environments)} environments: ratios between these compare machines or versions too"
        )
    cells = [cell for _, _, _, cell in results.definition.cells()]
    missing = sum(1 for cell in cells if cell not in samples)
    if missing:
        sentences.append(f"{missing} of {len(cells)} cells are not measured yet")
    others = len(samples.keys() - set(cells))
    if others:
        sentences.append(
            f"{plural(others, 'sample')} in the folder of no cell of the file as it is now: kept, not shown"
        )
    apart = sum(len({one.turns for one in row.measured}) > 1 for row in results.rows)
    if apart:
        sentences.append(
            f"in {apart} of {len(results.rows)} rows contenders did not take turns with each other: their ratios are of medians, with wider intervals"
        )
    clocks = sum(len({one.clock for one in row.measured}) > 1 for row in results.rows)
    if clocks:
        sentences.append(
            f"in {clocks} of {len(results.rows)} rows some were timed by the wall and others by processor time: "
            "their ratios say nothing; measure the row into another folder"
        )
    return sentences


def _page(
    results: Results,
    tables: Sequence[Table],
    pictures: Sequence[Path],
    facts: Sequence[str],
    folder: Path,
) -> str:
    definition = results.definition
    warned_facts = [one for one in facts if not one.startswith(("machine:", "study "))]
    if not is_installed("matplotlib"):
        warned_facts.append(f"no pictures: {absent('matplotlib')}")
    warned = "".join(f'<p class="warn">{html.escape(one)}</p>' for one in warned_facts)
    images = "".join(_image(file) for file in pictures)
    where = html.escape(
        json.dumps(read_environments(folder, results.environments), indent=1, ensure_ascii=False)
    )
    shown, how = "\n".join(map(as_html, tables)), ""
    if any(definition.entry(one.name).measure == CALL for one in definition.contenders):
        processes = f"{definition.processes} process{'es' * (definition.processes > 1)}"
        how = f"{definition.seconds:g} s a cell in {definition.rounds} rounds of {processes}, "
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(definition.name)}</title><style>{_STYLE}</style></head>
<body><h1>{html.escape(definition.name)}</h1>
<p>{html.escape(definition.about)}</p>
{warned}
{shown}
{images}
<h2>Environment</h2><pre>{where}</pre>
<p>Raw samples, each round of each cell with its order: samples.jsonl. {how}seed {definition.seed}.</p>
</body></html>
"""


def _image(file: Path) -> str:
    data = base64.b64encode(file.read_bytes()).decode()
    return f'<p><img alt="{html.escape(file.stem)}" src="data:image/png;base64,{data}"></p>\n'
