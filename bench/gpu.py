"""Kernels on a GPU that is there for minutes: right first, then timed beside torch and Triton's tutorial.

    python bench/gpu.py FOLDER --prepare                         # where there is no GPU: compiles everything, some minutes
    python bench/gpu.py FOLDER --stages meaning,bits,edges       # on the GPU, 4 minutes at most; needs numpy and cuda-bindings
    python bench/gpu.py FOLDER --stages sanitizer                # compute-sanitizer on a few of them
    python bench/gpu.py FOLDER --stages speed                    # 6 minutes at most
    python bench/gpu.py FOLDER --prepare --device emulated --quick && python bench/gpu.py FOLDER --device emulated --quick

Predictions are written when kernels are prepared. Where a meaning is wrong, no other stage runs. Results are in
FOLDER/results.json after each step, and the last lines are a table.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from device_run.folder import RESULTS, Prepared, Results, read_index
from device_run.runners import Emulated, OnDevice, Runner
from device_run.speed import speed
from device_run.stages import bits, edges, meaning, run_stage

from offcut.errors import OffcutError

STAGES = ("meaning", "bits", "edges", "sanitizer", "speed")
SANITIZER_SECONDS = 60


def sanitizer(folder: Path, results: Results) -> bool:
    """Run the stage meaning again under compute-sanitizer, each tool for a minute at most; return whether it is clean."""
    record = results.begin("sanitizer", logs={})
    program = shutil.which("compute-sanitizer")
    if program is None:
        record["left_out"] = "compute-sanitizer is not installed"
        results.flush()
        return True
    for tool in ("memcheck", "racecheck"):
        own = [sys.executable, __file__, str(folder), "--stages", "meaning", "--quick", "--cells", "72×24|96×130", "--results", f"{tool}.json"]  # fmt: skip
        command = [program, "--tool", tool, "--error-exitcode", "9", *own]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SANITIZER_SECONDS, check=False
            )
            record["logs"][tool] = {"status": done.returncode, "end": done.stdout[-2000:]}
        except subprocess.TimeoutExpired:
            record["logs"][tool] = {"status": None, "end": f"longer than {SANITIZER_SECONDS} s"}
        results.flush()
    return all(log["status"] != 9 for log in record["logs"].values())


def lines(held: dict[str, Any]) -> list[str]:
    """Return the table of results."""
    rows = []
    for stage, record in held.items():
        if "right" in record:
            rows.append(f"{stage:10} {len(record['right'])} right, {len(record['wrong'])} wrong")
            rows += [f"           {fault}" for fault in record["wrong"]]
        rows += [f"           bits equal {equal}: {pair}" for pair, equal in record.get("between", {}).items()]  # fmt: skip
        rows += [f"{stage:10} {name} {value}" for name, value in record.get("card", {}).items()]
        rows += [f"{stage:10} {name} {value}" for name, value in record.get("summary", {}).items()]
        for tool, log in record.get("logs", {}).items():
            rows.append(f"{stage:10} {tool} ended with {log['status']}")
        for word in ("left_out", "error", "errors"):
            if record.get(word):
                rows.append(f"{stage:10} {word}: {record[word]}")
    return rows


def options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog=Path(__file__).name, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("out/gpu"),
        help="of what is prepared, and of the results: out/gpu",
    )
    parser.add_argument("--prepare", action="store_true", help="compile what the stages need")
    parser.add_argument("--stages", default="meaning,bits,edges", help=", ".join(STAGES))
    parser.add_argument("--device", choices=("emulated",), help="without it, the first GPU")
    parser.add_argument("--machine", default="h200", help="whose code and predictions are prepared")
    parser.add_argument("--cells", default="", help="a regular expression of names of kernels")
    parser.add_argument("--quick", action="store_true", help="few kernels, sizes and data")
    parser.add_argument("--results", default=RESULTS, help="the name of the file in the folder")
    chosen = parser.parse_args()
    chosen.stages = chosen.stages.split(",")
    if unknown := [stage for stage in chosen.stages if stage not in STAGES]:
        parser.error(f"there is no stage {', '.join(unknown)}")
    if chosen.device == "emulated" and not {"sanitizer", "speed"}.isdisjoint(chosen.stages):
        parser.error("the emulated device runs meaning, bits and edges")
    return chosen


def timed(runner: Runner, kernels: list[Prepared], results: Results) -> bool:
    """Run the stage speed, on a GPU."""
    assert isinstance(runner, OnDevice)  # the command line sees to it
    return speed(runner, kernels, results)


def main() -> int:
    """Prepare, or run stages; return 0 if all was right."""
    chosen = options()
    cells = chosen.cells or ("72×24|37×133|centered" if chosen.quick else "")

    def wanted(name: str) -> object:
        return re.search(cells, name)

    if chosen.prepare:
        from device_run.prepare import prepare

        stages = set(STAGES) if chosen.device is None and not chosen.quick else {*chosen.stages}
        refused = prepare(chosen.folder, chosen.machine, chosen.device is None, wanted, stages)
        for name, because in refused.items():
            print(f"{name}: {because}")
        print(f"{len(read_index(chosen.folder)[0])} kernels in {chosen.folder.name}, {len(refused)} refused")  # fmt: skip
        return 0
    kernels, _ = read_index(chosen.folder)
    results = Results(chosen.folder / chosen.results)
    runner: Runner = Emulated() if chosen.device == "emulated" else OnDevice(chosen.folder)

    def of(stage: str) -> list[Prepared]:
        return [kernel for kernel in kernels if stage in kernel.stages and wanted(kernel.name)]

    run: dict[str, Callable[[], bool]] = {
        "meaning": lambda: run_stage(meaning, runner, of("meaning"), results, chosen.quick),
        "bits": lambda: run_stage(bits, runner, of("bits"), results, chosen.quick),
        "edges": lambda: run_stage(edges, runner, of("edges"), results, chosen.quick),
        "sanitizer": lambda: sanitizer(chosen.folder, results),
        "speed": lambda: timed(runner, of("speed"), results),
    }
    right = True
    for stage in chosen.stages:
        right = run[stage]() and right
        if stage == "meaning" and not right:
            break
    print("\n".join(lines(results.held)))
    return 0 if right else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OffcutError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
