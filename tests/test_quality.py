"""What is said of a result that cannot be trusted, and that nothing is said of one that can."""

import json

import numpy as np
import pytest
from scipy import stats

import sgdlimit as sl
from sgdlimit.results import Check, Curve, Quality, Status, Variable, judge, quality

TIME = np.linspace(0.0, 4.0, 41)
REPLICAS = (4, 8, 16, 64)


def curve(copies, systematic=0.0):
    """What `sl.solve` makes of its replicas."""
    mean = copies.mean(axis=0)
    return Curve(mean, stats.sem(copies, axis=0), np.full_like(mean, systematic), copies)


def smooth(rng, count, spread):
    """Replicas of 1 − e^{−t}/2 whose noise starts at zero and grows as √t."""
    noise = np.cumsum(rng.standard_normal((count, len(TIME))), axis=1) / np.sqrt(len(TIME))
    return 1 - np.exp(-TIME) / 2 + spread * noise


def check(found, name):
    one = found.named(name)
    assert one is not None, found
    return one


def failed(found):
    return {check.name for check in found.failed}


def test_ordinary_replicas_pass():
    """160 solutions with large but Gaussian spreads, every number of replicas: no alarm but for the error itself."""
    rng = np.random.default_rng(0)
    for count in REPLICAS:
        for _ in range(40):
            found = judge(TIME, {name: curve(smooth(rng, count, 0.3)) for name in ("norm", "train_loss", "overlap")})
            assert {name for name in failed(found) if not name.startswith("error")} == set(), found


def test_error_is_relative_to_the_scale():
    value = np.full((41, 2, 2), 0.5)
    value[3] = 2.0
    error = np.zeros_like(value)
    error[7, 1, 0] = 0.24
    zero = np.zeros_like(value)
    found = check(judge(TIME, {"norm": Curve(value, error, zero)}), "error of norm")
    assert found.value == pytest.approx(0.12)
    assert not found.passed
    assert "t = 0.7" in found.words
    assert judge(TIME, {"norm": Curve(value, error, zero)}, {"norm": 4.0}).passed
    # 3-4-5: both parts together
    both = judge(TIME, {"norm": Curve(value, np.full_like(value, 0.12), np.full_like(value, 0.16))})
    assert check(both, "error of norm").value == pytest.approx(0.1)
    # an overlap that vanishes is measured by the norm
    small = Curve(0 * value, error / 10, zero)
    assert check(judge(TIME, {"norm": Curve(value, zero, zero), "overlap": small}), "error of overlap").passed
    assert not check(judge(TIME, {"overlap": small}), "error of overlap").passed
    broken = np.where(value > 1, np.nan, value)
    assert not judge(TIME, {"norm": Curve(broken, zero, zero)}).passed


def test_replicas_that_run_apart():
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((16, 1))
    found = judge(TIME, {"norm": curve(1 + 1e-3 * noise * np.exp(1.6 * TIME))})
    assert "replicas drift" in failed(found)
    assert check(found, "replicas drift").words.startswith("norm")
    small = judge(TIME, {"norm": curve(1 + 1e-5 * noise * np.exp(1.6 * TIME))})
    assert small.passed  # grows as fast, but does not matter yet
    linear = judge(TIME, {"norm": curve(1 + 0.3 * noise * TIME / 4)})
    assert check(linear, "replicas drift").passed


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_two_groups_of_replicas(share):
    rng = np.random.default_rng(2)
    side = np.arange(16) < 16 * share
    copies = smooth(rng, 16, 0.02) + np.where(side, 0.0, 0.4)[:, None] * TIME / 4
    found = judge(TIME, {"overlap": curve(copies)})
    assert "replicas split" in failed(found)
    same = smooth(rng, 16, 0.02) + np.where(side, 0.0, 0.04)[:, None] * TIME / 4
    assert check(judge(TIME, {"overlap": curve(same)}), "replicas split").passed  # no two answers: 4 % apart


def test_one_replica_far_out():
    rng = np.random.default_rng(3)
    copies = smooth(rng, 16, 1e-3)
    copies[5] += 0.8 * np.sin(np.pi * TIME / 4)
    found = judge(TIME, {"norm": curve(copies), "train_loss": curve(smooth(rng, 16, 0.02))})
    assert "heavy tails" in failed(found)
    assert "t = 2" in check(found, "heavy tails").words
    assert check(found, "replicas split").passed


@pytest.mark.parametrize("count", [4, 8, 16, 20, 32, 64])
def test_separation_of_gaussian_samples(count):
    """The rate of false alarms on one curve is RARE, between the numbers of the table as well, so that fifty curves
    stay below 1e-3: of so many samples at most what a binomial exceeds once in 10⁴ times."""
    rng, tests, alarms = np.random.default_rng(count), 1_600_000 // count, 0
    for _ in range(10):
        values = rng.standard_normal((tests // 10, count))
        alarms += int(np.sum(quality._separation(values)[0] > quality._separation_limit(count)))
    assert alarms <= stats.binom.isf(1e-4, tests, quality.RARE)


def test_separation_is_found_where_two_groups_are():
    """Two means ±1, spreads 0.1: twenty spreads apart, whatever the order."""
    rng = np.random.default_rng(4)
    signs = np.where(np.arange(400) % 2, 1.0, -1.0)
    apart, distance = quality._separation((signs + 0.1 * rng.standard_normal(400))[None, :])
    assert apart[0] == pytest.approx(20, rel=0.1)
    assert distance[0] == pytest.approx(2, rel=0.02)
    assert quality._separation(np.ones((1, 8)))[1][0] == 0


@pytest.mark.parametrize("count", REPLICAS)
def test_share_of_one_replica_is_grubbs_test(count):
    """The bound is Bonferroni's: one in a thousand exceeds it, or fewer."""
    rng = np.random.default_rng(count)
    values = rng.standard_normal((200_000, count))
    squares = (values - values.mean(axis=1, keepdims=True)) ** 2
    limit = quality._largest_share(stats.t.isf(1e-3 / (2 * count), count - 2), count)
    rate = np.mean(squares.max(axis=1) / squares.sum(axis=1) > limit)
    assert 5e-4 < rate < 1e-3 + 4 * np.sqrt(1e-3 / 200_000)


def test_growth_without_bound():
    def grown(norm, loss):
        zero = np.zeros_like(TIME)
        curves = {"norm": Curve(norm[:, None, None], zero[:, None, None], zero[:, None, None])}
        return check(judge(TIME, curves | {"train_loss": Curve(loss, zero, zero)}), "growth")

    assert not grown(np.exp(TIME), np.exp(TIME)).passed
    assert not grown(np.exp(TIME), np.ones_like(TIME)).passed
    assert grown(np.exp(TIME), np.exp(-TIME)).passed  # leaves a saddle and learns
    assert grown(1 + TIME**3, 1 + TIME**3).passed  # a power of time slows down
    assert not grown(np.exp(14 * TIME**0.5), np.exp(TIME)).passed  # slows down, but still soars
    assert grown(1 - np.exp(-TIME), np.exp(-TIME)).passed


def test_words_and_back():
    found = judge(TIME, {"norm": curve(smooth(np.random.default_rng(5), 16, 0.5))})
    found += [Check.least("draws", 3.0, 5.0, "too few"), Check.report("slope", np.inf, "unknown")]
    again = Quality.from_words(json.loads(json.dumps(found.to_words(), allow_nan=False)))
    assert again == found
    assert isinstance(found, Quality)
    assert not again.passed
    assert [c.name for c in again.failed][-1] == "draws"
    table = repr(again).splitlines()
    assert len(table) == len(again) + 1
    assert "FAILED" in table[-2]
    assert "inf" in table[-1]
    assert repr(Quality()) == "nothing was checked"
    assert Quality().passed
    for bad in ({"name": 1}, [1], [{"name": "x"}], 3, [{**found.to_words()[0], "passed": "yes"}]):
        with pytest.raises(sl.InputError, match="quality"):
            Quality.from_words(bad)


def solution(share=0.01, status="complete", **about):
    """A solution of a width of two with the given error."""
    value = 1 - np.exp(-TIME) / 2
    matrix = value[:, None, None] * np.array([[1.0, 0.1], [0.1, 3.0]])
    variables = {"train_error": Variable(("time",), value), "norm": Variable(("time", "student", "student_"), matrix)}
    variables |= {f"{n}_stderr": Variable(v.dims, np.full_like(v.values, share)) for n, v in variables.items()}
    return sl.Solution(variables, {"time": TIME}, {"status": status, **about})


def test_status_is_one_of_the_words(tmp_path):
    for word in Status:
        assert solution(status=word.value).status == word.value
    assert [word for word in Status if solution(status=word.value).success] == ["complete"]
    with pytest.raises(sl.InputError, match=r"status: got 'fine'; it must be one of complete, tolerance missed"):
        solution(status="fine")
    with pytest.raises(sl.InputError, match="quality"):
        solution(quality=[{"name": "error"}])
    judged = solution(status="unreliable", quality=Quality([Check.most("growth", 3.0, 1.0, "grows")]).to_words())
    back = sl.load(judged.save(tmp_path / "run.nc"))
    assert back.status == "unreliable"
    assert back.quality == judged.quality
    assert "growth 3 (limit 1): grows" in repr(back)


def test_the_summary_warns():
    good, bad = solution(0.01), solution(0.25)
    assert "warning" not in repr(good)
    assert good.unreliable == {}
    assert set(bad.unreliable) == {"train_error"}  # the norm is three times as large
    assert "warning" in repr(bad)
    assert "train_error (25 %)" in repr(bad)
    assert "the error exceeds 10 %" in bad._repr_html_()
    # as the solver judged it, with its own scale
    judged = solution(0.3, quality=Quality([Check.most("error of train_error", 0.05, 0.1, "")]).to_words())
    assert "train_error" not in judged.unreliable
    assert "tolerance    0.01; error of train_error: 0.05" in repr(
        solution(options={"tol": 0.01}, quality=judged.quality.to_words())
    )


def test_the_summary_shows_matrices():
    text = repr(solution(0.01))
    assert "mean diagonal 1 → 1.9817 ± 0.01" in text
    one = sl.least_squares(
        sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0)), sl.SGF(0.1), t_max=1.0
    )
    assert f"→ {one['overlap'][-1, 0, 0]:.5g}" in repr(one)
    assert f"→ {one['norm'][-1, 0, 0]:.5g}" in repr(one)


def test_a_single_trial_is_not_called_unreliable():
    """It has no error: nothing is known, nothing is claimed."""
    runs = sl.Runs(
        {"train_error": Variable(("trial", "time"), np.ones((1, 41)))}, {"time": TIME, "trial": np.arange(1)}
    )
    assert runs.unreliable == {}
    few = sl.Runs(
        {"train_error": Variable(("trial", "time"), np.array([0.5, 1.5])[:, None] * np.ones(41))},
        {"time": TIME, "trial": np.arange(2)},
    )
    assert set(few.unreliable) == {"train_error"}


def test_a_missing_variable_is_named_with_its_neighbours():
    found = solution()
    with pytest.raises(sl.InputError, match="did you mean train_error\\? it has train_error, norm, time") as caught:
        found["tain_error"]
    assert isinstance(caught.value, KeyError)
    assert not str(caught.value).startswith('"')
    with pytest.raises(KeyError):
        found["zebra"]
    with pytest.raises(sl.InputError, match="it has train_error"):
        found.curve("zebra")
    assert "tain_error" not in found
    assert "train_error" in found
