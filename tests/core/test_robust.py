"""Robust scores: two-sided, blind to no NaN, quiet on constants, with one false-alarm rate at any length."""

import numpy as np
import pytest

from msprobe.core.robust import LEAST_VALUES, THRESHOLD, drift, median, normal_of, scores, widening


@pytest.fixture
def noise():
    return np.random.default_rng(0)


def test_spikes_and_collapses_both_show(noise):
    norms = np.exp(0.1 * noise.standard_normal(64))
    for factor, sign in ((1e3, 1), (1e-3, -1)):
        changed = norms.copy()
        changed[40] *= factor
        found = scores(changed, magnitudes=True)
        assert sign * found[40] > THRESHOLD
        assert np.abs(np.delete(found, 40)).max() < THRESHOLD


def test_nan_infinity_and_outliers_in_the_history_do_not_blind_it(noise):
    history = 5 + noise.standard_normal(60)
    history[::4] = np.nan
    history[1::4] = [np.inf, 1e30, -np.inf] * 5
    assert normal_of(history).score(50.0) > THRESHOLD
    assert abs(normal_of(history).score(6.0)) < 2


def test_what_is_not_finite_has_no_score():
    assert np.isnan(normal_of(np.arange(20.0)).score([np.nan, np.inf, -np.inf])).all()


def test_a_constant_tolerates_roundings_and_not_a_change():
    normal = normal_of(np.full(50, 3.0))
    assert abs(normal.score(3.0000001)) < 1
    assert normal.score(3.0) == 0
    assert normal.score(6.0) > THRESHOLD


def test_a_history_of_zeros_knows_no_scale():
    normal = normal_of(np.zeros(50))
    assert normal.score(0.0) == 0
    assert np.isnan(normal.score(1e-12))


def test_a_magnitude_that_becomes_zero_has_collapsed():
    assert normal_of(np.linspace(1, 2, 20), magnitudes=True).score(0.0) == -np.inf


@pytest.mark.parametrize("values", [[], [1.0] * (LEAST_VALUES - 1), [np.nan] * 20])
def test_too_short_a_history_says_not_known(values):
    assert np.isnan(normal_of(np.array(values)).score(1.0))


def test_values_half_equal_fall_back_to_the_mean_deviation(noise):
    history = np.where(np.arange(100) % 5 < 3, 1.0, 1 + noise.standard_normal(100))
    assert np.abs(scores(history)).max() < THRESHOLD


@pytest.mark.parametrize("count", [8, 12, 16, 32, 64, 128])
def test_widening_gives_short_histories_no_more_false_alarms_than_long_ones(noise, count):
    columns = 100_000
    history = 100 + noise.standard_normal((count, columns))
    normal = normal_of(history, floor=0.0)
    fired = np.abs(normal.score(100 + noise.standard_normal(columns))) > 4.4172  # 1 in 100,000 Gaussian values
    assert fired.sum() <= 6
    assert 1 <= widening(count) < 10


def test_heavy_tails_pass_the_threshold_rarely(noise):
    history = noise.standard_t(4, (200, 2_000))
    assert (np.abs(scores(history)) > THRESHOLD).mean() < 2e-4


def test_any_axis_gives_the_same(noise):
    values = noise.standard_normal((30, 4))
    np.testing.assert_array_equal(scores(values, axis=0), scores(values.T, axis=1).T)


def test_the_band_is_where_scores_are_within_the_threshold(noise):
    normal = normal_of(np.exp(noise.standard_normal(50)), magnitudes=True)
    low, high = normal.band(5.0)
    np.testing.assert_allclose(normal.score([low, high]), [-5, 5])


def test_the_median_leaves_nan_out(noise):
    values = noise.standard_normal((9, 50))
    values[noise.random(values.shape) < 0.3] = np.nan
    values[:, 0] = np.nan
    np.testing.assert_allclose(median(values)[1:], np.nanmedian(values[:, 1:], axis=0), rtol=1e-14)
    assert np.isnan(median(values)[0])


def test_slow_drift_shows_where_no_single_step_does(noise):
    still = np.exp(0.05 * noise.standard_normal(400))
    drifting = still * np.exp(np.linspace(0, 2, 400))
    assert np.abs(scores(drifting, magnitudes=True)).max() < THRESHOLD
    assert drift(drifting, magnitudes=True) > THRESHOLD
    assert abs(drift(still, magnitudes=True)) < 2
    assert np.isnan(drift(still[:20]))
