"""Starts that know the teacher, starts where a solution ended, and chains of problems.

Oracles: laws with means, whose overlap needs no word of its own; the closed form of least squares; runs that go on.
"""

import dataclasses

import jax
import numpy as np
import pytest
from agreement import FALSE_ALARM, assert_within

import sgdlimit as sl
from sgdlimit.chain import _seed, _tasks
from sgdlimit.describe import problem_from_words, to_words

TIMES = np.linspace(0.0, 2.0, 5)
RIDGE = dict(loss=sl.Square(), penalty=sl.Ridge(0.1), noise=sl.Normal(0.3), teacher=sl.Normal(1.0))
SGD = sl.SGD(0.4, batch_size=4)
CURVES = ["train_loss", "test_loss", "train_error", "test_error", "overlap", "norm"]


def problem(**changes) -> sl.Problem:
    return sl.Problem(**{**RIDGE, "sample_ratio": 2.0, **changes})


def assert_same(report: sl.Report) -> None:
    """One test over all curves."""
    assert report.p_value > FALSE_ALARM, report


def with_means(overlap: float, scale: float) -> sl.Law:
    """A start whose mean is its overlap with a teacher of ones."""
    spread = np.sqrt(scale**2 - overlap**2)
    law = lambda key, shape: overlap + spread * jax.random.normal(key, shape)  # noqa: E731
    return sl.Law(law, mean=overlap, second_moment=scale**2)


def test_overlap_and_scale_are_those_asked_for():
    own = problem(init=sl.Towards(0.3, scale=0.8))
    np.testing.assert_allclose(own.gram(), [[0.64, 0.3], [0.3, 1.0]], rtol=1e-12)
    theta, theta_star = own.sample_weights(jax.random.key(0), 200_000)
    drawn = np.concatenate([theta, theta_star], axis=1)
    np.testing.assert_allclose(drawn.T @ drawn / len(drawn), own.gram(), atol=0.012)
    spread = own.spread_weights(jax.random.key(1), 4096)
    np.testing.assert_allclose(spread.T @ spread / len(spread), own.gram(), atol=0.06)


def test_one_number_is_the_diagonal_at_larger_widths():
    net = sl.TwoLayer("erf")
    wide = problem(loss=net, width=3, teacher_width=2, init=sl.Towards(0.2, scale=[0.5, 0.6, 0.7]))
    expected = np.eye(5)
    expected[:3, :3] = np.diag([0.25, 0.36, 0.49])
    expected[0, 3] = expected[3, 0] = expected[1, 4] = expected[4, 1] = 0.2
    np.testing.assert_allclose(wide.gram(), expected, atol=1e-12)
    overlap = [[0.1, 0.2], [0.3, -0.2]]
    pair = problem(loss=net, width=2, teacher=sl.Normal(2.0), init=sl.Towards(overlap, scale=1.0))
    gram = pair.gram()
    np.testing.assert_allclose(gram[:2, 2:], overlap, atol=1e-12)
    # correlated through the teacher alone: E θ_0 θ_1 = c_0 · c_1 / 4
    np.testing.assert_allclose(gram[0, 1], (0.1 * 0.3 - 0.2 * 0.2) / 4, atol=1e-12)


@pytest.mark.parametrize(
    "data",
    [sl.Spectrum([2.0, 0.5], [0.3, 0.7], [1.5, -0.2]), sl.PowerLaw(0.8, 0.5, groups=4), sl.Mixture([1.0, -1.0])],
    ids=lambda data: type(data).__name__,
)
def test_total_overlap_on_structured_data(data):
    rest = dict(teacher=None, labels=sl.ByClass(), noise=sl.Point()) if data.classes else {}
    own = problem(data=data, init=sl.Towards(0.25, scale=0.9), **rest)
    np.testing.assert_allclose(own.weight_gram()[0, :2], [0.81, 0.25], rtol=1e-9)
    runs = sl.simulate(own, SGD, times=[0.0, 0.1], dim=400, trials=4)
    value, error = (part[0, 0, 0] for part in runs.curve("overlap"))
    assert abs(value - 0.25) < 5 * error


def test_least_squares_as_with_means():
    """In the limit of least squares only second moments enter: the curves are equal to rounding."""
    towards = sl.least_squares(problem(init=sl.Towards(0.3, scale=0.8)), SGD, times=TIMES)
    means = sl.least_squares(problem(init=with_means(0.3, 0.8), teacher=sl.Point(1.0)), SGD, times=TIMES)
    for name in CURVES:
        np.testing.assert_allclose(towards[name], means[name], rtol=1e-10)
    online = sl.online(problem(init=sl.Towards(0.3, scale=0.8), sample_ratio=np.inf), SGD, times=TIMES)
    exact = sl.least_squares(problem(init=sl.Towards(0.3, scale=0.8), sample_ratio=np.inf), SGD, times=TIMES)
    for name in ("test_error", "overlap", "norm"):
        np.testing.assert_allclose(online[name], exact[name], rtol=1e-4)


def test_the_march_with_a_start():
    """Against the closed form, and against real runs."""
    own = problem(init=sl.Towards(-0.3, scale=0.8))
    found, exact = sl.solve(own, SGD, times=TIMES), sl.least_squares(own, SGD, times=TIMES)
    assert_same(sl.compare(found, exact, CURVES))
    assert_same(sl.compare(exact, sl.simulate(own, SGD, times=TIMES, dim=300, trials=8), CURVES))
    value, error = found.curve("overlap")
    assert_within(value[1:] - exact["overlap"][1:], error[1:])


def test_particles_with_a_start():
    """Where the penalty is not quadratic, θ⁰ and θ* are drawn together: L1 and a sparse teacher, online and by runs."""
    own = problem(penalty=sl.L1(0.1), teacher=sl.SparseNormal(0.2, 1.0), init=sl.Towards(0.1, scale=0.5))
    found = sl.solve(own, SGD, t_max=1.0, samples=4096, replicas=4, dt=0.1)
    np.testing.assert_allclose(found["overlap"][0], 0.1, atol=1e-6)
    np.testing.assert_allclose(found["norm"][0], 0.25, atol=1e-6)
    assert_same(sl.compare(found, sl.simulate(own, SGD, t_max=1.0, dim=200, trials=6), CURVES))


def test_words_bring_a_start_back():
    own = problem(init=sl.Towards([[0.1]], norm=[[0.5]]))
    assert problem_from_words(to_words(own)) == own
    assert dataclasses.replace(own, teacher=sl.Normal(2.0)).gram()[0, 1] == pytest.approx(0.1)
    assert dataclasses.replace(own, teacher=sl.Normal(2.0)).gram()[0, 0] == pytest.approx(0.5)


WRONG = {
    r"scale of at least 0.3, not 0.2": lambda: problem(init=sl.Towards(0.3, scale=0.2)),
    r"scale of unit 1 of at least 0.3": lambda: problem(
        loss=sl.TwoLayer("erf"), width=2, init=sl.Towards(0.3, scale=[1.0, 0.2])
    ),
    r"no teacher": lambda: problem(teacher=None, labels=sl.Noise(), init=sl.Towards(0.3, scale=1.0)),
    r"RandomFeatures has directions": lambda: problem(data=sl.RandomFeatures("relu"), init=sl.Towards(0.3, scale=1.0)),
    r"shape \(1, 2\)": lambda: problem(init=sl.Towards([[0.1, 0.2]], scale=1.0)),
    r"got neither": lambda: sl.Towards(0.3),
    r"got both": lambda: sl.Towards(0.3, scale=1.0, norm=[[1.0]]),
    r"from 0 to": lambda: sl.Towards(0.3, scale=-1.0),
    r"eigenvalues": lambda: sl.Towards(0.3, norm=[[1.0, 2.0], [0.0, 1.0]]),
    r"overlap alone": lambda: problem(init=sl.Towards(0.8, norm=[[0.5]])),
    r"Towards.overlap: got 'a'": lambda: sl.Towards("a", scale=1.0),
    r"depend on each other": lambda: problem(
        loss=sl.TwoLayer("erf"), width=2, teacher=sl.Point(1.0), init=sl.Towards(0.3, scale=1.0)
    ),
    r"factors on the teacher that cancel": lambda: problem(
        data=sl.Spectrum([1.0, 1.0], teacher=[1.0, -1.0]), init=sl.Towards(0.3, scale=1.0)
    ),
    r"teacher: got": lambda: problem(teacher=sl.Towards(0.3, scale=1.0)),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_no_start_can_be(message):
    with pytest.raises(sl.InputError, match=message):
        WRONG[message]()


def test_going_on_where_a_solution_ended():
    """Second moments at the last time; with a new teacher of correlation ω the overlap is ω times the old one."""
    ended = sl.least_squares(problem(), SGD, times=TIMES)
    norm, overlap = ended["norm"][-1], ended["overlap"][-1]
    for init, factor in ((ended.end(), 1.0), (ended.end(0.5), 0.5), (ended.end([[-1.0]]), -1.0)):
        gram = problem(init=init).gram()
        np.testing.assert_allclose(gram[:1, :1], norm, rtol=1e-9)
        np.testing.assert_allclose(gram[:1, 1:], factor * overlap, rtol=1e-9)
    wider = ended.end([[0.5, 0.5]], teacher=sl.Normal(2.0))
    np.testing.assert_allclose(wider.overlap, overlap * [1.0, 1.0], rtol=1e-9)
    following = problem(sample_ratio=3.0, init=ended.end(0.5))
    exact = sl.least_squares(following, SGD, times=TIMES)
    assert_same(sl.compare(sl.solve(following, SGD, times=TIMES), exact, CURVES))


def test_gradient_flow_that_is_cut_in_two():
    """With infinite data fresh samples are no news: two halves are the whole."""
    endless = problem(sample_ratio=np.inf)
    whole = sl.online(endless, SGD, times=[0.0, 1.0, 2.0])
    half = sl.online(endless, SGD, times=[0.0, 1.0])
    rest = sl.online(problem(sample_ratio=np.inf, init=half.end()), SGD, times=[0.0, 1.0])
    for name in ("overlap", "norm", "test_error"):
        np.testing.assert_allclose(rest[name][-1], whole[name][-1], rtol=1e-4)


def test_solutions_that_no_start_follows_from():
    ended = sl.least_squares(problem(), SGD, times=TIMES)
    for correlation in (1.5, [0.5], [[0.9, 0.9]]):
        with pytest.raises(sl.InputError, match="teacher_overlap"):
            ended.end(correlation)
    groups = sl.least_squares(problem(data=sl.Spectrum([1.0, 2.0])), SGD, times=TIMES)
    with pytest.raises(sl.InputError, match=r"data=Spectrum.*moments of their own"):
        groups.end()
    with pytest.raises(sl.InputError, match="intercept"):
        sl.online(problem(bias=True, sample_ratio=np.inf), SGD, t_max=0.1, samples=4096).end()
    own = sl.least_squares(problem(teacher=with_means(0.0, 1.0)), SGD, times=TIMES)
    assert isinstance(own.end(), sl.Towards)
    with pytest.raises(sl.InputError, match="function of the user's"):
        own.end(0.5)


FIRST = problem(noise=sl.Normal(0.3))
SECOND = problem(noise=sl.Normal(0.1), sample_ratio=3.0)


def test_a_chain_is_what_its_stages_are():
    """Least squares stage by stage, with the start that each follows from; a task that comes again has its teacher."""
    chain = sl.chain([(FIRST, SGD, TIMES), (SECOND, SGD, TIMES)], teacher_overlap=0.4, seed=1)
    assert (chain.status, len(chain), chain.tasks) == ("complete", 2, (0, 1))
    assert _tasks([(FIRST, SGD, 1.0), (SECOND, SGD, 1.0), (FIRST, SGD, 2.0)], 0.4).numbers == (0, 1, 0)
    first = sl.least_squares(FIRST, SGD, times=TIMES)
    second = sl.least_squares(dataclasses.replace(SECOND, init=first.end(0.4)), SGD, times=TIMES)
    for stage, exact, task in ((chain[0], first, 0), (chain[1], second, 1)):
        for name in ("norm", "test_error", "train_error"):
            np.testing.assert_allclose(stage[name], exact[name], atol=0.015 * np.max(exact[name]))
        np.testing.assert_allclose(stage["overlap"][:, 0, task], exact["overlap"][:, 0, 0], atol=0.01)
        for side in ("train", "test"):
            own = stage[f"{side}_task_{task}_error"]
            np.testing.assert_allclose(own, stage[f"{side}_error"], atol=0.01 * np.max(exact["test_error"]))
    # on fresh samples of task 0, E(r − r*)² + noise², whatever is trained on
    told = chain[1]["norm"][:, 0, 0] - 2 * chain[1]["overlap"][:, 0, 0] + 1.0 + 0.3**2
    np.testing.assert_allclose(chain[1]["test_task_0_error"], told, atol=0.01)
    time, (value, _) = chain.time, chain.curve("test_task_0_error")
    assert (time[0], time[-1], len(time)) == (0.0, 4.0, len(value))
    np.testing.assert_allclose(value[len(TIMES) - 1], value[len(TIMES)], rtol=0.02)
    assert "Chain of 2 stages" in repr(chain)


def test_runs_of_a_chain_go_on():
    """Weights and teachers of a trial are those that the stage before left; the data are not."""
    stages = [(FIRST, SGD, 1.0), (SECOND, SGD, 0.5)]
    runs = sl.simulate_chain(stages, dim=60, trials=2, teacher_overlap=0.4)
    np.testing.assert_allclose(runs[1]["norm"][:, 0], runs[0]["norm"][:, -1], rtol=1e-6)
    np.testing.assert_array_equal(runs[1]["theta_star"], runs[0]["theta_star"])
    assert runs[0]["theta_star"].shape[-1] == 2
    assert not np.array_equal(runs[1]["z"][:, :120], runs[0]["z"])
    again = sl.simulate_chain(stages, dim=60, trials=2, teacher_overlap=0.4)
    np.testing.assert_array_equal(again[1]["norm"], runs[1]["norm"])
    plain = sl.simulate(FIRST, SGD, t_max=0.1, dim=60, trials=1)  # nothing is left behind
    assert plain["theta_star"].shape[-1] == 1
    assert _seed(3, 0) == 3
    assert len({_seed(seed, stage) for seed in range(5) for stage in range(5)}) == 25


def test_first_problem_of_a_chain_leans_towards_its_teacher():
    leaning = dataclasses.replace(FIRST, init=sl.Towards(0.5, scale=0.6))
    told = _tasks([(leaning, SGD, 1.0), (SECOND, SGD, 1.0)], 0.4)
    np.testing.assert_allclose(told.stages[0][0].gram(), [[0.36, 0.5, 0.2], [0.5, 1.0, 0.4], [0.2, 0.4, 1.0]])
    same = _tasks([(leaning, SGD, 1.0), (SECOND, SGD, 1.0)], 1.0)  # a teacher twice
    np.testing.assert_allclose(same.stages[0][0].gram()[0], [0.36, 0.5, 0.5])


def test_correlations_of_a_chain():
    pair = problem(loss=sl.TwoLayer("erf"), width=2)
    other = dataclasses.replace(pair, teacher=sl.Normal(2.0))
    by_unit = _tasks([(pair, SGD, 1.0), (other, SGD, 1.0)], 0.5).moments
    np.testing.assert_allclose(by_unit, [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 4, 0], [0, 1, 0, 4]])
    by_task = _tasks([(pair, SGD, 1.0), (other, SGD, 1.0)], [[1.0, 0.5], [0.5, 1.0]]).moments
    np.testing.assert_allclose(by_task, by_unit)
    full = np.eye(4)
    full[0, 3] = full[3, 0] = 0.5
    np.testing.assert_allclose(_tasks([(pair, SGD, 1.0), (other, SGD, 1.0)], full).moments[0], [1, 0, 0, 1])


CHAINS = {
    "stages: got \\[\\]": lambda: sl.chain([]),
    "stages.0.: got": lambda: sl.chain([FIRST]),  # type: ignore[list-item]
    "an algorithm second": lambda: sl.chain([(FIRST, 1.0, SGD)]),  # type: ignore[list-item]
    "no teachers have it": lambda: sl.chain([(FIRST, SGD, 1.0), (SECOND, SGD, 1.0)], teacher_overlap=1.5),
    "shape \\(3, 3\\)": lambda: sl.chain([(FIRST, SGD, 1.0), (SECOND, SGD, 1.0)], teacher_overlap=np.eye(3)),
    "jointly Gaussian": lambda: sl.chain([(problem(teacher=sl.Rademacher(1.0)), SGD, 1.0)]),
    "all alike": lambda: sl.chain([(problem(data=sl.Spectrum([1.0, 2.0])), SGD, 1.0)]),
    "only the first": lambda: sl.chain([(FIRST, SGD, 1.0), (problem(init=sl.Normal(0.1)), SGD, 1.0)]),
    "intercept": lambda: sl.chain([(problem(bias=True), SGD, 1.0)] * 2),
    "of width 1": lambda: sl.chain([(FIRST, SGD, 1.0), (problem(loss=sl.TwoLayer("erf"), width=2), SGD, 1.0)]),
    "the same law of z": lambda: sl.chain([(FIRST, SGD, 1.0), (problem(noise=sl.Rademacher(1.0)), SGD, 1.0)]),
    "checkpoint": lambda: sl.chain([(FIRST, SGD, 1.0)], checkpoint="file"),
    "snapshots": lambda: sl.simulate_chain([(FIRST, SGD, 1.0)], dim=50, snapshots=[0.5]),
}


@pytest.mark.parametrize("message", CHAINS)
def test_what_no_chain_is(message):
    with pytest.raises(sl.InputError, match=message):
        CHAINS[message]()


def test_trained_parameters_go_on():
    """Those of the next problem that have the name of one that was trained start where it ended."""
    from sgdlimit.problem.trained import restarted, trained_of

    net = sl.TwoLayer("erf", readout=sl.Trained([1.0, -1.0], rate=0.5), output_bias=sl.Trained(0.0))
    own = restarted(problem(loss=net, width=2), {"readout": np.array([0.3, 0.4]), "other": 1.0})
    found = trained_of(own)
    np.testing.assert_array_equal(found["readout"].start, [0.3, 0.4])
    assert (found["readout"].rate, found["output_bias"].start) == (0.5, 0.0)


def scaled(**changes) -> sl.Problem:
    """½(ar + b − y)² with a and b trained; its error is (r − y)²."""
    names = {"a": sl.Trained(0.5, rate=0.5)} | {
        name: sl.Trained(value) for name, value in changes.pop("more", {}).items()
    }
    fn = lambda r, y, a, **more: 0.5 * (a * r + sum(more.values()) - y) ** 2  # noqa: E731
    return problem(loss=sl.Loss(fn, parameters=names), **changes)


def test_trained_parameters_of_a_chain():
    """Under a name they go on from one stage to the next; a name that comes again goes on where it was trained last."""
    first, second = scaled(more={"b": 0.3}), scaled(sample_ratio=3.0)
    stages = [(first, SGD, 1.0), (second, SGD, 0.5), (first, SGD, 0.5)]
    endless = [(dataclasses.replace(task, sample_ratio=np.inf), how, t) for task, how, t in stages]
    for chain in (
        sl.simulate_chain(stages, dim=60, trials=3, teacher_overlap=0.4),
        sl.chain(endless, teacher_overlap=0.4, samples=4096),
    ):
        ends = [{name: part.curve(name)[0][[0, -1]] for name in ("a", "b") if name in part} for part in chain]
        assert [sorted(end) for end in ends] == [["a", "b"], ["a"], ["a", "b"]]
        assert ends[0]["a"][0] == pytest.approx(0.5)
        for before, after, name in ((0, 1, "a"), (1, 2, "a"), (0, 2, "b")):
            np.testing.assert_allclose(ends[before][name][1], ends[after][name][0], rtol=1e-6)
            assert abs(ends[after][name][1] - ends[after][name][0]) > 1e-4
        for part, own in zip(chain, chain.tasks, strict=True):
            for side in ("train", "test"):
                name = f"{side}_task_{own}_loss"
                np.testing.assert_allclose(part.curve(name)[0], part.curve(f"{side}_loss")[0], rtol=1e-5)
            # the first task is told of where b is trained
            assert ("test_task_0_loss" in part) == ("b" in part)
            assert "test_task_1_loss" in part
    shapes = [problem(loss=sl.TwoLayer("erf", bias=sl.Trained(bias)), width=2) for bias in (0.0, [0.0, 0.1])]
    with pytest.raises(sl.InputError, match=r"bias of shape \(2,\) in task 1, and \(\) before"):
        sl.chain([(task, SGD, 1.0) for task in shapes])


def test_an_intercept_of_a_chain():
    """It goes on in runs, as one that the loss has does in theory too."""
    task = problem(bias=True, labels=sl.Labels(lambda s, z: s + z + 0.5))
    shifted = sl.Loss(lambda r, y, b: 0.5 * (r + b - y) ** 2, parameters={"b": sl.Trained(0.0)})
    stages, written = ([(own, SGD, 0.5)] * 2 for own in (task, dataclasses.replace(task, bias=False, loss=shifted)))
    size: dict = dict(dim=60, trials=2, dtype="float64")
    own, same = sl.simulate_chain(stages, **size), sl.simulate_chain(written, **size)
    for left, right in zip(own, same, strict=True):
        np.testing.assert_allclose(left["intercept"][..., 0], right["b"], rtol=1e-12, atol=1e-14)
        for name in ("norm", "test_task_0_loss", "train_loss"):
            np.testing.assert_allclose(left[name], right[name], rtol=1e-12)
    np.testing.assert_array_equal(own[1]["intercept"][:, 0], own[0]["intercept"][:, -1])
    assert np.all(own[1]["intercept"][:, -1] > own[1]["intercept"][:, 0])
    with pytest.raises(sl.InputError, match=r"stages\[1\].bias.*Trained.*simulate_chain"):
        sl.chain(stages)


@pytest.mark.slow
def test_a_chain_with_a_trained_readout_against_runs():
    """One test over all curves, both tasks and all trained parameters, at d = 1000."""
    net = sl.TwoLayer("erf", readout=sl.Trained([1.0, 0.5]), output_bias=sl.Trained(0.2))
    task = dict(loss=net, labels=sl.TwoLayerLabels("erf", readout=[0.5, 1.5]), width=2)
    stages = [
        (problem(init=sl.Towards(0.2, scale=0.4), **task), SGD, TIMES),
        (problem(sample_ratio=3.0, **task), SGD, TIMES),
    ]
    theory = sl.chain(stages, teacher_overlap=0.5, tol=5e-3)
    runs = sl.simulate_chain(stages, dim=1000, trials=32, teacher_overlap=0.5, seed=1)
    tasks = [f"{side}_task_{own}_{name}" for side in ("train", "test") for own in (0, 1) for name in ("loss", "error")]
    reports = [
        sl.compare(*pair, [*CURVES, *tasks, "readout", "output_bias"]) for pair in zip(theory, runs, strict=True)
    ]
    print([round(report.p_value, 4) for report in reports])
    assert all(report.p_value > 0.01 for report in reports), reports


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 3])
def test_a_chain_against_runs_that_really_go_on(width):
    """Two tasks, every stage against d = 500, 1000, 2000: one test over all curves, of all teachers and both tasks."""
    changes = {} if width == 1 else dict(loss=sl.TwoLayer("erf"), labels=sl.TwoLayerLabels("erf"), width=3)
    start = sl.Towards(0.1, scale=0.4) if width == 3 else sl.Point()
    stages = [(problem(init=start, **changes), SGD, TIMES), (problem(sample_ratio=3.0, **changes), SGD, TIMES)]
    theory = sl.chain(stages, teacher_overlap=0.5, tol=5e-3)
    tasks = [
        f"{side}_task_{task}_{name}" for side in ("train", "test") for task in (0, 1) for name in ("loss", "error")
    ]
    gaps = []
    for dim, trials in ((500, 64), (1000, 32), (2000, 16)):
        runs = sl.simulate_chain(stages, dim=dim, trials=trials, teacher_overlap=0.5, seed=1)
        names = [*CURVES, *tasks]
        reports = [sl.compare(left, right, names) for left, right in zip(theory, runs, strict=True)]
        gaps.append([np.abs(runs[1].curve(name)[0] - theory[1][name]).max() for name in CURVES])
        print(dim, [round(report.p_value, 4) for report in reports], np.round(gaps[-1], 4))
        if dim == 2000:
            assert all(report.p_value > 0.01 for report in reports), reports
    assert np.mean(gaps[-1]) < 0.02
