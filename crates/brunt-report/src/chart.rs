//! A chart as data. `assets/page.js` draws it in the browser with uPlot and adds an equivalent table for
//! screen readers.
//!
//! The rule: a chart always has data ([`Chart::is_empty`]); missing measurements are reported in a sentence
//! instead ([`crate::page::Block::Missing`]).

use serde::{Serialize, Serializer};

use crate::format::Unit;

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// As far as the values go.
    Linear,
    /// From zero, so that heights can be compared.
    FromZero,
    /// By powers of ten.
    Log,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "DrawnAxis")]
pub struct Axis {
    /// What is on it, without the unit.
    pub label: String,
    /// What its numbers count.
    pub unit: Unit,
    /// How they are spread.
    pub scale: Scale,
    /// Where ticks stand; empty lets the page choose.
    pub ticks: Vec<f64>,
}

/// An axis as the page gets it.
#[derive(Serialize)]
struct DrawnAxis {
    label: String,
    /// What stands at the axis.
    title: String,
    unit: Unit,
    scale: Scale,
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "numbers")]
    ticks: Vec<f64>,
}

impl From<Axis> for DrawnAxis {
    fn from(axis: Axis) -> DrawnAxis {
        let title = axis.title();
        let Axis {
            label,
            unit,
            scale,
            ticks,
        } = axis;
        DrawnAxis {
            label,
            title,
            unit,
            scale,
            ticks,
        }
    }
}

impl Axis {
    /// An axis whose ticks the page chooses.
    pub fn new(label: impl Into<String>, unit: Unit, scale: Scale) -> Axis {
        Axis {
            label: label.into(),
            unit,
            scale,
            ticks: Vec::new(),
        }
    }

    /// What stands at it: the label, and that it is logarithmic if it is. Ticks that are evenly spread do not tell.
    pub fn title(&self) -> String {
        match self.scale {
            Scale::Log => format!("{} (log scale)", self.label),
            Scale::Linear | Scale::FromZero => self.label.clone(),
        }
    }
}

/// What a series stands for, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeriesRole {
    /// One thing among others: the palette's next colour, by the given index.
    Nominal(usize),
    /// A level of one thing, such as a percentile: from 0, pale, to 3, strong; 4 is the extreme.
    Level(usize),
    /// A repetition of the same thing, by the given index: thin lines that lie over each other.
    Run(usize),
    /// What the others are held against: grey and dashed.
    Reference(usize),
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// At each x; `None` where there is nothing.
    #[serde(serialize_with = "gaps")]
    pub values: Vec<Option<f64>>,
    /// Lower ends of the 95 % intervals; empty if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "gaps")]
    pub low: Vec<Option<f64>>,
    /// Upper ends.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "gaps")]
    pub high: Vec<Option<f64>>,
    /// Its colour.
    pub role: SeriesRole,
}

impl Series {
    /// A line without intervals.
    pub fn new(name: impl Into<String>, role: SeriesRole, values: Vec<Option<f64>>) -> Series {
        Series {
            name: name.into(),
            values,
            low: Vec::new(),
            high: Vec::new(),
            role,
        }
    }
}

/// A shaded stretch of the x axis, such as a fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShadedSpan {
    /// Where it begins, in units of x.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// What it was.
    pub label: String,
}

/// A place on the x axis with a meaning of its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// Where, in units of x.
    pub at: f64,
    /// What it is, in a word or two.
    pub label: String,
    /// Of which series it is.
    pub role: SeriesRole,
}

/// Counts over time and value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Heat {
    /// Where columns begin on x; the last number is where the last one ends.
    #[serde(serialize_with = "numbers")]
    pub columns: Vec<f64>,
    /// Where rows begin on y; the last number is where the last one ends.
    #[serde(serialize_with = "numbers")]
    pub rows: Vec<f64>,
    /// Column, row, count, one after the other; the others are zero.
    pub cells: Vec<u64>,
}

/// How a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// Few measured places, joined: marks, and whiskers for intervals.
    Lines,
    /// Many places: lines alone.
    Curves,
    /// Counts as colour.
    Heat,
}

/// A chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// In a few words.
    pub title: String,
    /// What a reader has to know to read it, in a sentence; may be empty.
    #[serde(skip)]
    pub caption: String,
    /// How it is drawn.
    pub kind: ChartKind,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The places on x.
    #[serde(serialize_with = "numbers")]
    pub xs: Vec<f64>,
    /// The lines.
    pub series: Vec<Series>,
    /// Areas between two series, by their indexes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fills: Vec<(usize, usize)>,
    /// Shaded stretches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<ShadedSpan>,
    /// Upright lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// Of a heat map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heat: Option<Heat>,
    /// Charts of one name share their cursor and their stretch of x.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<String>,
    /// Where x begins and ends; as far as the places go if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stretch: Option<(f64, f64)>,
    /// In CSS pixels.
    pub height: u32,
}

impl Chart {
    /// A chart of measured places.
    pub fn lines(
        title: impl Into<String>,
        x: Axis,
        y: Axis,
        xs: Vec<f64>,
        series: Vec<Series>,
    ) -> Chart {
        let (title, caption, kind) = (title.into(), String::new(), ChartKind::Lines);
        let (fills, spans, marks) = (Vec::new(), Vec::new(), Vec::new());
        let (heat, sync, stretch) = (None, None, None);
        Chart {
            title,
            caption,
            kind,
            x,
            y,
            xs,
            series,
            fills,
            spans,
            marks,
            heat,
            sync,
            stretch,
            height: 260,
        }
    }

    /// A chart of curves.
    pub fn curves(
        title: impl Into<String>,
        x: Axis,
        y: Axis,
        xs: Vec<f64>,
        series: Vec<Series>,
    ) -> Chart {
        Chart {
            kind: ChartKind::Curves,
            ..Chart::lines(title, x, y, xs, series)
        }
    }

    /// A heat map.
    pub fn heat(title: impl Into<String>, x: Axis, y: Axis, heat: Heat) -> Chart {
        let chart = Chart::lines(title, x, y, Vec::new(), Vec::new());
        Chart {
            kind: ChartKind::Heat,
            heat: Some(heat),
            ..chart
        }
    }

    /// With a sentence below.
    pub fn caption(self, caption: impl Into<String>) -> Chart {
        Chart {
            caption: caption.into(),
            ..self
        }
    }

    /// On a time line shared with others.
    pub fn on(self, sync: &str, spans: &[ShadedSpan]) -> Chart {
        Chart {
            sync: Some(sync.into()),
            spans: spans.to_vec(),
            ..self
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        match &self.heat {
            Some(heat) => heat.cells.is_empty(),
            None => self
                .series
                .iter()
                .all(|series| series.values.iter().all(Option::is_none)),
        }
    }
}

/// Five figures are more than a screen shows, and keep the file small.
fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
    if scale.is_finite() && scale < 1e15 {
        (value * scale).round() / scale
    } else {
        value
    }
}

/// Whole numbers without their ".0".
#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Whole(i64),
    Broken(f64),
}

fn number(value: f64) -> Number {
    let value = short(value);
    if value == value.trunc() && value.abs() < 9e15 {
        Number::Whole(value as i64)
    } else {
        Number::Broken(value)
    }
}

fn numbers<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|value| number(*value)))
}

fn gaps<S: Serializer>(values: &[Option<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(
        values
            .iter()
            .map(|value| value.filter(|v| v.is_finite()).map(number)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An axis that is logarithmic says so where it is named, and only there.
    #[test]
    fn logarithmic_axes_are_named_so() {
        let axis =
            |scale| serde_json::to_value(Axis::new("queue depth", Unit::Count, scale)).unwrap();
        assert_eq!(axis(Scale::Log)["title"], "queue depth (log scale)");
        assert_eq!(axis(Scale::Log)["label"], "queue depth");
        assert_eq!(axis(Scale::Linear)["title"], "queue depth");
    }

    /// Data is short, and what is no number becomes a gap.
    #[test]
    fn data_is_short() {
        let values = vec![
            Some(1.0),
            Some(123456.789),
            Some(0.000123456),
            None,
            Some(f64::NAN),
            Some(0.1 + 0.2),
        ];
        let series = Series::new("a", SeriesRole::Nominal(0), values);
        let text = serde_json::to_string(&series).unwrap();
        assert!(
            text.contains("[1,123460,0.00012346,null,null,0.3]"),
            "{text}"
        );
        assert!(!text.contains("low"), "{text}");
    }
}
