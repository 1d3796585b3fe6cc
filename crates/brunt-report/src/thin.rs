//! Thins long series to a drawable length, incrementally and in bounded memory.
//!
//! The rule: merged points keep their minimum and maximum, in order, so that thinning hides neither dips nor peaks.

use std::collections::BTreeMap;

use crate::chart::Heat;

/// `N` figures over time. Holds at most `Thin::stretches_max` segments: when there are more, neighbours are merged in
/// pairs.
#[derive(Clone, Debug)]
pub struct Thin<const N: usize> {
    stretches_max: usize,
    /// Number of pushes in a complete segment.
    each: usize,
    pushed: u64,
    stretches: Vec<Stretch<N>>,
}

#[derive(Clone, Copy, Debug)]
struct Stretch<const N: usize> {
    start_s: f64,
    end_s: f64,
    pushes: usize,
    ends: [Option<Ends>; N],
}

/// Lowest and highest value, each with the number of the push that it came from.
#[derive(Clone, Copy, Debug)]
struct Ends {
    low: (u64, f64),
    high: (u64, f64),
}

impl Ends {
    fn merge(a: Option<Ends>, b: Option<Ends>) -> Option<Ends> {
        let (Some(a), Some(b)) = (a, b) else {
            return a.or(b);
        };
        let low = if b.low.1 < a.low.1 { b.low } else { a.low };
        let high = if b.high.1 > a.high.1 { b.high } else { a.high };
        Some(Ends { low, high })
    }
}

impl<const N: usize> Stretch<N> {
    fn merge(&mut self, other: &Stretch<N>) {
        self.end_s = other.end_s;
        self.pushes += other.pushes;
        for (ends, more) in self.ends.iter_mut().zip(other.ends) {
            *ends = Ends::merge(*ends, more);
        }
    }
}

impl<const N: usize> Thin<N> {
    /// An empty series; keeps at least two segments.
    pub fn new(stretches_max: usize) -> Thin<N> {
        Thin {
            stretches_max: stretches_max.max(2),
            each: 1,
            pushed: 0,
            stretches: Vec::new(),
        }
    }

    /// Adds the next interval with its figures.
    pub fn push(&mut self, start_s: f64, end_s: f64, values: [Option<f64>; N]) {
        let at = self.pushed;
        self.pushed += 1;
        let ends = values.map(|value| {
            value.map(|value| Ends {
                low: (at, value),
                high: (at, value),
            })
        });
        let stretch = Stretch {
            start_s,
            end_s,
            pushes: 1,
            ends,
        };
        match self.stretches.last_mut() {
            Some(last) if last.pushes < self.each => last.merge(&stretch),
            _ => self.stretches.push(stretch),
        }
        if self.stretches.len() > self.stretches_max {
            self.each *= 2;
            let pairs = self.stretches.chunks(2).map(|pair| {
                let mut merged = pair[0];
                pair.get(1).inspect(|second| merged.merge(second));
                merged
            });
            self.stretches = pairs.collect();
        }
    }

    /// Number of intervals pushed.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Number of pushes per segment; with 1, a segment has one position, otherwise two.
    pub fn each(&self) -> usize {
        self.each
    }

    /// Start of the first segment and end of the last.
    pub fn span(&self) -> Option<(f64, f64)> {
        Some((
            self.stretches.first()?.start_s,
            self.stretches.last()?.end_s,
        ))
    }

    /// Positions in time: the middle of each segment or, once pushes have been merged, two in each segment.
    pub fn places(&self) -> Vec<f64> {
        let at = |stretch: &Stretch<N>, share: f64| {
            stretch.start_s + (stretch.end_s - stretch.start_s) * share
        };
        match self.each {
            1 => self
                .stretches
                .iter()
                .map(|stretch| at(stretch, 0.5))
                .collect(),
            _ => self
                .stretches
                .iter()
                .flat_map(|stretch| [at(stretch, 0.25), at(stretch, 0.75)])
                .collect(),
        }
    }

    /// Values of a figure, one per position.
    pub fn values(&self, figure: usize) -> Vec<Option<f64>> {
        let of = |stretch: &Stretch<N>| match stretch.ends[figure] {
            None => [None, None],
            Some(Ends { low, high }) if low.0 <= high.0 => [Some(low.1), Some(high.1)],
            Some(Ends { low, high }) => [Some(high.1), Some(low.1)],
        };
        match self.each {
            1 => self
                .stretches
                .iter()
                .map(|stretch| of(stretch)[0])
                .collect(),
            _ => self.stretches.iter().flat_map(of).collect(),
        }
    }

    /// Values of a figure at ascending positions, such as those of another series over the same time.
    pub fn at(&self, figure: usize, places: &[f64]) -> Vec<Option<f64>> {
        let values = self.values(figure);
        let per_stretch = if self.each == 1 { 1 } else { 2 };
        let mut stretches = self.stretches.iter().enumerate().peekable();
        let value = |place: &f64| {
            while stretches
                .next_if(|(_, stretch)| stretch.end_s <= *place)
                .is_some()
            {}
            let (index, stretch) = stretches
                .peek()
                .filter(|(_, stretch)| stretch.start_s <= *place)?;
            let half = usize::from(*place >= f64::midpoint(stretch.start_s, stretch.end_s));
            values[index * per_stretch + half.min(per_stretch - 1)]
        };
        places.iter().map(value).collect()
    }

    /// Whether a figure is always zero.
    pub fn is_zero(&self, figure: usize) -> bool {
        let zero = |ends: &Ends| ends.low.1 == 0.0 && ends.high.1 == 0.0;
        self.stretches
            .iter()
            .all(|stretch| stretch.ends[figure].as_ref().is_none_or(zero))
    }
}

/// Maximum number of columns in a map.
const COLUMNS_MAX: usize = 160;
/// Rows of a map per factor of ten.
const ROWS_PER_DECADE: f64 = 12.0;

/// Counts of requests by time and latency. Holds at most `COLUMNS_MAX` columns, and merges neighbours in pairs when
/// there are more.
#[derive(Clone, Debug, Default)]
pub struct Map {
    each: usize,
    columns: Vec<Column>,
}

#[derive(Clone, Debug)]
struct Column {
    start_s: f64,
    end_s: f64,
    pushes: usize,
    counts: BTreeMap<i32, u64>,
}

impl Column {
    fn merge(&mut self, other: Column) {
        self.end_s = other.end_s;
        self.pushes += other.pushes;
        for (row, count) in other.counts {
            *self.counts.entry(row).or_default() += count;
        }
    }
}

impl Map {
    /// Starts the next interval; [`Map::count`] fills it.
    pub fn stretch(&mut self, start_s: f64, end_s: f64) {
        self.each = self.each.max(1);
        if self.columns.len() == COLUMNS_MAX && self.columns[COLUMNS_MAX - 1].pushes >= self.each {
            self.each *= 2;
            let mut merged: Vec<Column> = Vec::with_capacity(COLUMNS_MAX);
            for (index, column) in std::mem::take(&mut self.columns).into_iter().enumerate() {
                match merged.last_mut() {
                    Some(last) if index % 2 == 1 => last.merge(column),
                    _ => merged.push(column),
                }
            }
            self.columns = merged;
        }
        let column = Column {
            start_s,
            end_s,
            pushes: 1,
            counts: BTreeMap::new(),
        };
        match self.columns.last_mut() {
            Some(last) if last.pushes < self.each => last.merge(column),
            _ => self.columns.push(column),
        }
    }

    /// Counts requests of the current interval with this latency in microseconds.
    pub fn count(&mut self, us: f64, requests: u64) {
        let row = (us.max(1e-3).log10() * ROWS_PER_DECADE).floor() as i32;
        if let Some(column) = self.columns.last_mut().filter(|_| requests > 0) {
            let count = column.counts.entry(row).or_default();
            *count = count.saturating_add(requests);
        }
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// The heat map; `None` without requests.
    pub fn heat(&self) -> Option<Heat> {
        let rows = || {
            self.columns
                .iter()
                .flat_map(|column| column.counts.keys().copied())
        };
        let (first, last) = (rows().min()?, rows().max()?);
        let mut columns: Vec<f64> = self.columns.iter().map(|column| column.start_s).collect();
        columns.push(self.columns.last()?.end_s);
        let rows = (first..=last + 1)
            .map(|row| 10f64.powf(f64::from(row) / ROWS_PER_DECADE))
            .collect();
        let cells = self.columns.iter().enumerate().flat_map(|(index, column)| {
            let cell =
                move |(row, count): (&i32, &u64)| [index as u64, (row - first) as u64, *count];
            column.counts.iter().flat_map(cell)
        });
        Some(Heat {
            columns,
            rows,
            cells: cells.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thinning keeps every dip and peak, and their order, in bounded memory.
    #[test]
    fn thinning_keeps_extremes() {
        let mut thin: Thin<1> = Thin::new(200);
        for i in 0..10_000u32 {
            let value = match i {
                4321 => 3.0,
                9876 => 5000.0,
                9877 => 1.0,
                _ => 1000.0,
            };
            thin.push(f64::from(i), f64::from(i) + 1.0, [Some(value)]);
        }
        let (places, values) = (thin.places(), thin.values(0));
        assert!(
            places.len() == values.len() && values.len() <= 400 && values.len() > 150,
            "{}",
            values.len()
        );
        let at = |wanted: f64| {
            values
                .iter()
                .position(|value| *value == Some(wanted))
                .unwrap()
        };
        assert!(at(5000.0) + 1 == at(1.0) && at(3.0) < at(5000.0));
        assert!((places[at(3.0)] - 4321.0).abs() < 64.0 && places.is_sorted());
        assert_eq!(
            (thin.span(), thin.pushed()),
            (Some((0.0, 10_000.0)), 10_000)
        );
    }

    /// A short series is kept unchanged, gaps included.
    #[test]
    fn short_series_stay() {
        let mut thin: Thin<2> = Thin::new(10);
        thin.push(0.0, 1.0, [Some(1.0), None]);
        thin.push(1.0, 2.0, [Some(2.0), Some(0.0)]);
        assert_eq!((thin.places(), thin.each()), (vec![0.5, 1.5], 1));
        assert_eq!(
            (thin.values(0), thin.values(1)),
            (vec![Some(1.0), Some(2.0)], vec![None, Some(0.0)])
        );
        assert!(thin.is_zero(1) && !thin.is_zero(0));
    }

    /// At its own positions a series has its own values; at the positions of a finer series it has the value of the
    /// surrounding segment, and none outside its range.
    #[test]
    fn values_at_places_of_another() {
        let (mut fine, mut coarse): (Thin<1>, Thin<1>) = (Thin::new(100), Thin::new(4));
        for i in 0..8u32 {
            let (start, value) = (f64::from(i), (i != 5).then_some(f64::from(i)));
            fine.push(start, start + 1.0, [value]);
            coarse.push(start, start + 1.0, [value]);
        }
        assert_eq!((fine.each(), coarse.each()), (1, 2));
        assert_eq!(fine.at(0, &fine.places()), fine.values(0));
        assert_eq!(coarse.at(0, &coarse.places()), coarse.values(0));
        let known = [0, 1, 2, 3, 4, 4, 6, 7].map(|value| Some(f64::from(value)));
        assert_eq!(coarse.at(0, &fine.places()), known);
        assert_eq!(fine.at(0, &[-0.5, 3.5, 8.5]), [None, Some(3.0), None]);
    }

    /// Every request is in the map at its latency, however long the run is.
    #[test]
    fn maps_keep_all() {
        let mut map = Map::default();
        assert!(map.heat().is_none());
        for second in 0..5000u32 {
            map.stretch(f64::from(second), f64::from(second) + 1.0);
            map.count(100.0, 10);
            map.count(100_000.0, 1);
        }
        let heat = map.heat().unwrap();
        assert!(map.columns() <= COLUMNS_MAX && heat.columns.len() == map.columns() + 1);
        assert_eq!(heat.columns[map.columns()], 5000.0);
        assert_eq!(heat.cells.iter().skip(2).step_by(3).sum::<u64>(), 55_000);
        assert!((heat.rows[0] - 100.0).abs() < 1e-6 && heat.rows[heat.rows.len() - 1] > 100_000.0);
    }
}
