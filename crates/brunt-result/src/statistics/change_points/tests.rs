use super::*;

/// A series of normal noise around these levels, each given with its number of values; `noise` is a share of the
/// level.
fn series(random: &mut Random, noise: f64, levels: &[(usize, f64)]) -> Vec<f64> {
    let each = levels
        .iter()
        .flat_map(|(count, level)| std::iter::repeat_n(*level, *count));
    each.map(|level| level * (1.0 + noise * random.normal()))
        .collect()
}

fn indexes(series: &[f64]) -> Vec<usize> {
    change_points(series)
        .iter()
        .map(|change| change.index)
        .collect()
}

/// Of `series_count` series with `after` values after a shift by 5 %, the number that have a change point within
/// `away` of the shift.
fn seen(noise: f64, after: usize, series_count: usize, away: usize) -> usize {
    let mut random = Random::new(5);
    let is_seen = |_: &usize| {
        let series = series(&mut random, noise, &[(20, 1000.0), (after, 1050.0)]);
        indexes(&series)
            .iter()
            .any(|index| index.abs_diff(20) <= away)
    };
    (0..series_count).filter(is_seen).count()
}

/// At most one false alarm in 100: white noise of 1 to 10 %, 5 to 100 results, every third series with an outlier.
#[test]
fn unchanged_series_have_no_changes() {
    let mut random = Random::new(1);
    let (mut alarms, count) = (0, 600);
    for one in 0..count {
        let noise = 0.01 * (1 + one % 10) as f64;
        let length = 5 + (one * 37 % 96);
        let mut series = series(&mut random, noise, &[(length, 5e4)]);
        if one % 3 == 0 {
            let place = random.below(length as u64) as usize;
            series[place] *= if one % 2 == 0 { 1.5 } else { 0.6 };
        }
        alarms += usize::from(!change_points(&series).is_empty());
    }
    println!("{alarms} false alarms in {count} series");
    assert!(alarms * 100 <= count, "{alarms} of {count}");
}

/// An outlier isn't a change, wherever it is, not even as the newest result.
#[test]
fn one_outlier_is_no_change() {
    let mut random = Random::new(2);
    for place in [0, 10, 27, 28, 29] {
        let mut series = series(&mut random, 0.02, &[(30, 80.0)]);
        series[place] *= 3.0;
        assert_eq!(indexes(&series), [0; 0], "at {place}");
    }
}

/// If runs differ by 3 % and a result is the mean of five, a shift of 5 % is detected by the fifth result after it.
#[test]
fn a_small_shift_is_seen_within_five_results() {
    let noise = 0.03 / 5f64.sqrt();
    let found = [4, 5].map(|after| seen(noise, after, 60, 1));
    println!("{found:?} of 60 after 4 and 5 results");
    assert!(found[0] >= 54 && found[1] >= 56, "{found:?}");
}

/// If results differ by 3 %, it takes more of them to detect the shift; the docs of `change_points` say why.
#[test]
fn a_small_shift_over_large_noise_is_seen_later() {
    let found = [5, 10, 20].map(|after| seen(0.03, after, 60, 5));
    println!("{found:?} of 60 after 5, 10 and 20 results");
    assert!(
        found[0] >= 12 && found[1] >= 33 && found[2] >= 52,
        "{found:?}"
    );
}

#[test]
fn a_plain_shift_is_located_exactly() {
    let mut random = Random::new(3);
    for (before, after) in [(20, 5), (12, 12), (30, 3), (6, 25)] {
        for (noise, level) in [(0.01, 120.0), (0.02, 80.0)] {
            let series = series(&mut random, noise, &[(before, 100.0), (after, level)]);
            let changes = change_points(&series);
            assert_eq!(indexes(&series), [before], "{before} and {after}");
            let change = changes[0];
            let ratio = change.ratio.unwrap();
            assert!((ratio / (level / 100.0) - 1.0).abs() < 0.04, "{change:?}");
            assert!(change.low.unwrap() <= ratio && ratio <= change.high.unwrap());
            assert!(
                (change.after / change.before - ratio).abs() < 1e-9 && change.p <= FALSE_ALARMS
            );
        }
    }
}

/// A slowdown that was fixed later has two change points, although no split in two is clear.
#[test]
fn a_slowdown_that_ended_is_seen() {
    let mut random = Random::new(4);
    let levels = [(20, 100.0), (6, 120.0), (20, 100.0)];
    let series = series(&mut random, 0.02, &levels);
    assert_eq!(indexes(&series), [20, 26]);
}

/// A long series is searched window by window.
#[test]
fn a_long_series_has_each_change_once() {
    let mut random = Random::new(6);
    let levels = [(90, 100.0), (75, 130.0), (85, 115.0)];
    let series = series(&mut random, 0.02, &levels);
    assert_eq!(indexes(&series), [90, 165]);
    let flat = super::tests::series(&mut random, 0.05, &[(260, 7.0)]);
    assert_eq!(indexes(&flat), [0; 0]);
}

/// Zeros and negative values are compared by differences; series that are too short, constant or contain unknown
/// values have no changes.
#[test]
fn unusual_series_are_understood() {
    let mut zeros = vec![0.0; 15];
    zeros.extend([5.0, 6.0, 5.0, 7.0, 6.0, 5.0]);
    let changes = change_points(&zeros);
    assert_eq!((changes.len(), changes[0].index), (1, 15));
    assert_eq!((changes[0].before, changes[0].ratio), (0.0, None));
    for series in [
        vec![],
        vec![1.0],
        vec![3.0; 50],
        vec![1.0, 1.0, 1.0, 9.0, 9.0, 9.0],
    ] {
        assert_eq!(change_points(&series), []);
    }
    zeros[3] = f64::NAN;
    assert_eq!(change_points(&zeros), []);
}
