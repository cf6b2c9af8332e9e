"""The default call, t_max and recorded times alone, on every problem of the gallery: seconds and reported error.

    python benchmarks/gallery.py                       # all of them
    python benchmarks/gallery.py softmax power_law     # these

The scripts of `examples/` run with their own problems; whatever they ask of `sl.solve` is replaced by the default call,
and their simulations are cut to a few small runs.
"""

import importlib.util
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib

import sgdlimit as sl

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
KEPT = ("t_max", "times", "dt", "kernels", "snapshots", "metrics", "weight_metrics", "seed")
"""Options that say what is wanted, not how well: dt is kept where the step is real."""


def main() -> None:
    matplotlib.use("Agg")
    warnings.simplefilter("ignore")
    solve, simulate, name = sl.solve, sl.simulate, ""

    def default(problem: sl.Problem, algorithm: Any, t_max: Any = None, **options: Any) -> sl.Solution:
        given = {key: value for key, value in options.items() if key in KEPT and (key != "dt" or algorithm.discrete)}
        begin = time.perf_counter()
        out = solve(problem, algorithm, t_max, **given, progress=False)
        seconds, found = time.perf_counter() - begin, out.about["diagnostics"]
        error = 2 * max((part["total"] for part in found.get("errors", {}).values()), default=0.0)
        what = f"{type(problem.loss).__name__}, width {problem.width}, δ = {float(problem.sample_ratio):.3g}"
        cells = (name, f"{what}, {type(algorithm).__name__}", f"{seconds:.1f}", f"{found['compile_seconds']:.1f}",
                 f"{error:.1e}", out.status)  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
        return out

    def few(problem: sl.Problem, algorithm: Any, *positional: Any, **options: Any) -> sl.Runs:
        return simulate(problem, algorithm, *positional, **(options | {"dim": 100, "trials": 2, "progress": False}))

    sl.solve, sl.simulate = default, few  # type: ignore[assignment]
    print("| example | problem | seconds | of them compiling | reported error (two total errors) | status |")
    print("|---|---|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as folder:
        for path in (path for path in EXAMPLES if not sys.argv[1:] or path.stem in sys.argv[1:]):
            name = path.stem
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            module.main(Path(folder) / "picture.png")


if __name__ == "__main__":
    main()
