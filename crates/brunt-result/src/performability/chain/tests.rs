use super::*;

fn component(name: &str, units: u32, repairs: u32, mttf_s: f64, mttr_s: f64) -> FailingComponent {
    FailingComponent {
        name: name.into(),
        faults: (1..=units).map(|unit| format!("{name} {unit}")).collect(),
        units,
        mttf_s,
        mttr_s,
        repairs_at_once: repairs,
    }
}

fn close(found: f64, expected: f64) {
    let error = (found / expected - 1.0).abs();
    assert!(error < 1e-12, "{found} is not {expected}");
}

/// The stationary distribution of any chain from its rates, by the algorithm of Grassmann, Taksar and Heyman, which
/// subtracts nothing: an independent check of the closed forms.
fn stationary(mut rates: Vec<Vec<f64>>) -> Vec<f64> {
    let count = rates.len();
    for last in (1..count).rev() {
        let leaving: f64 = rates[last][..last].iter().sum();
        for from in 0..last {
            rates[from][last] /= leaving;
            for to in 0..last {
                if from != to {
                    rates[from][to] += rates[from][last] * rates[last][to];
                }
            }
        }
    }
    let mut weights = vec![1.0];
    for state in 1..count {
        // Only transitions from states that already have a weight count.
        let into = weights.iter().zip(&rates);
        let weight = into.map(|(weight, rates)| weight * rates[state]).sum();
        weights.push(weight);
    }
    let all: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / all).collect()
}

/// A machine that fails at the rate λ and is repaired at the rate μ is available for μ / (λ + μ) of the time.
#[test]
fn one_machines_availability_follows_the_formula() {
    for (mttf_s, mttr_s) in [
        (1.0, 1.0),
        (2_592_000.0, 14_400.0),
        (10.0, 90.0),
        (9e9, 1e-3),
    ] {
        let (lambda, mu) = (1.0 / mttf_s, 1.0 / mttr_s);
        let levels = levels(&component("machine", 1, 1, mttf_s, mttr_s));
        assert_eq!(levels.len(), 2);
        close(levels[0], mu / (lambda + mu));
        close(levels[1], lambda / (lambda + mu));
    }
}

/// If each of n units has its own repairer, the number of failed units is binomial; an array that needs k of them is
/// available for the sum of its terms.
#[test]
fn k_of_n_units_with_a_repairer_each_are_binomial() {
    let (n, mttf_s, mttr_s) = (8, 1000.0, 30.0);
    let up = mttf_s / (mttf_s + mttr_s);
    let levels = levels(&component("disks", n, n, mttf_s, mttr_s));
    let choose = |j: i32| (0..j).fold(1.0, |ways, i| ways * f64::from(8 - i) / f64::from(i + 1));
    let term = |j: i32| choose(j) * up.powi(8 - j) * (1.0 - up).powi(j);
    for (j, found) in (0..).zip(&levels) {
        close(*found, term(j));
    }
    // 6 of 8.
    close(levels[..3].iter().sum(), term(0) + term(1) + term(2));
}

/// With one repairer for all units, it is the machine repair model: π(j) = n! / (n - j)! (λ / μ)^j π(0).
#[test]
fn k_of_n_units_with_one_repairer_are_the_machine_repair_model() {
    let (n, mttf_s, mttr_s) = (6, 50.0, 20.0);
    let levels = levels(&component("disks", n, 1, mttf_s, mttr_s));
    let falling = |j: i32| (0..j).fold(1.0, |product, i| product * f64::from(6 - i));
    let weight = |j: i32| falling(j) * f64::powi(mttr_s / mttf_s, j);
    let all: f64 = (0..=6).map(weight).sum();
    for (j, found) in (0..).zip(&levels) {
        close(*found, weight(j) / all);
    }
}

/// The closed form solves the balance equations of the birth-death chain for any number of repairers.
#[test]
fn birth_death_chains_are_in_balance() {
    for repairs in 1..=5 {
        let (n, mttf_s, mttr_s) = (5u32, 700.0, 90.0);
        let mut rates = vec![vec![0.0; 6]; 6];
        for j in 0..5u32 {
            rates[j as usize][j as usize + 1] = f64::from(n - j) / mttf_s;
            rates[j as usize + 1][j as usize] = f64::from((j + 1).min(repairs)) / mttr_s;
        }
        let found = levels(&component("disks", n, repairs, mttf_s, mttr_s));
        for (found, expected) in found.iter().zip(stationary(rates)) {
            close(*found, expected);
        }
    }
}

/// States of independent components are products, as the chain of the whole system confirms.
#[test]
fn independent_components_have_product_form() {
    let parts = [(500.0, 20.0), (3000.0, 100.0), (40.0, 10.0)];
    let mut rates = vec![vec![0.0; 8]; 8];
    for state in 0..8usize {
        for (bit, (mttf_s, mttr_s)) in parts.iter().enumerate() {
            let failed = state & (1 << bit) != 0;
            rates[state][state ^ (1 << bit)] = 1.0 / if failed { mttr_s } else { mttf_s };
        }
    }
    let whole = stationary(rates);
    let names = ["a", "b", "c"];
    let components: Vec<FailingComponent> = names
        .iter()
        .zip(parts)
        .map(|(name, (mttf_s, mttr_s))| component(name, 1, 1, mttf_s, mttr_s))
        .collect();
    let found = states(&components);
    assert_eq!(found.len(), 8);
    for state in &found {
        let has = |bit: usize| state.faults.contains(&format!("{} 1", names[bit]));
        let index: usize = (0..3).filter(|bit| has(*bit)).map(|bit| 1 << bit).sum();
        close(state.probability, whole[index]);
        let of = |bit: usize| {
            let (mttf_s, mttr_s) = parts[bit];
            let time = if has(bit) { mttr_s } else { mttf_s };
            time / (mttf_s + mttr_s)
        };
        close(state.probability, of(0) * of(1) * of(2));
    }
    close(found.iter().map(|state| state.probability).sum(), 1.0);
    assert!(found.is_sorted_by(|a, b| a.probability >= b.probability));
}

/// All states beyond a component's faults count as one, and very rare states keep their precision.
#[test]
fn rare_states_are_precise() {
    let disks = FailingComponent {
        faults: vec!["one disk".into(), "two disks".into()],
        ..component("disks", 10_000, 10_000, 4e9, 4.0)
    };
    let found = levels(&disks);
    assert_eq!(found.len(), 4);
    close(found.iter().sum(), 1.0);
    close(found[1] / found[0], 10_000.0 * 1e-9);
    close(found[2] / found[1], 9_999.0 / 2.0 * 1e-9);
    // The next level sums three and more failed disks: nearly all of it is three, because four are only 9,997 / 4 *
    // 1e-9 times as likely.
    let third = found[2] * 9_998.0 / 3.0 * 1e-9;
    assert!((found[3] / third - 1.0).abs() < 1e-5, "{}", found[3]);
    let states = states(std::slice::from_ref(&disks));
    assert_eq!(states[0].faults, Vec::<String>::new());
    assert_eq!(states[2].faults, ["one disk", "two disks"]);
    assert_eq!(
        (&states[3].faults[..], &states[3].more[..]),
        (&[][..], &["disks".to_string()][..])
    );
}
