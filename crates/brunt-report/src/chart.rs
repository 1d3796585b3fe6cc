//! A chart as data. `assets/page.js` draws it in the browser with uPlot and adds an equivalent table for
//! screen readers.
//!
//! The rule: a chart always has data ([`Chart::is_empty`]); missing measurements are reported in a sentence instead
//! ([`crate::page::Block::Missing`]).

use serde::{Serialize, Serializer};

use crate::format::Unit;

/// How an axis is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Linear over the range of the values.
    Linear,
    /// Linear from zero, so that heights can be compared.
    FromZero,
    /// Logarithmic.
    Log,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "DrawnAxis")]
pub struct Axis {
    /// Quantity, without the unit.
    pub label: String,
    /// Unit of its values.
    pub unit: Unit,
    /// Scale of its values.
    pub scale: Scale,
    /// Positions of ticks; if empty, the page chooses them.
    pub ticks: Vec<f64>,
}

/// An axis as sent to the page.
#[derive(Serialize)]
struct DrawnAxis {
    label: String,
    /// Title shown at the axis.
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
    /// An axis with ticks chosen by the page.
    pub fn new(label: impl Into<String>, unit: Unit, scale: Scale) -> Axis {
        Axis {
            label: label.into(),
            unit,
            scale,
            ticks: Vec::new(),
        }
    }

    /// The title: the label, marked if the scale is logarithmic, because evenly spaced ticks don't show that.
    pub fn title(&self) -> String {
        match self.scale {
            Scale::Log => format!("{} (log scale)", self.label),
            Scale::Linear | Scale::FromZero => self.label.clone(),
        }
    }
}

/// Role of a series, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeriesRole {
    /// One of several items; the index selects a colour of the palette.
    Nominal(usize),
    /// A level of one quantity, such as a percentile: from 0 (pale) to 3 (strong); 4 is the extreme.
    Level(usize),
    /// A repetition of the same measurement, with the given index; repetitions are thin lines on top of each other.
    Run(usize),
    /// The reference for the other series: grey and dashed.
    Reference(usize),
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// The value at each x; `None` where there is no value.
    #[serde(serialize_with = "gaps")]
    pub values: Vec<Option<f64>>,
    /// Lower ends of the 95 % intervals; empty if the line has no intervals.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "gaps")]
    pub low: Vec<Option<f64>>,
    /// Upper ends of the 95 % intervals.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "gaps")]
    pub high: Vec<Option<f64>>,
    /// Role, which decides its colour.
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

/// A shaded range of the x axis, such as a fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShadedSpan {
    /// Start, in units of x.
    pub from: f64,
    /// End, in units of x.
    pub to: f64,
    /// Label of the range.
    pub label: String,
}

/// A marked position on the x axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// Position, in units of x.
    pub at: f64,
    /// Label, a word or two.
    pub label: String,
    /// Role of the series that it belongs to.
    pub role: SeriesRole,
}

/// Counts by time and value, for a heat map.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Heat {
    /// Edges of the columns on x, including the end of the last one.
    #[serde(serialize_with = "numbers")]
    pub columns: Vec<f64>,
    /// Edges of the rows on y, including the end of the last one.
    #[serde(serialize_with = "numbers")]
    pub rows: Vec<f64>,
    /// Column, row and count of each cell, flattened; all other cells are zero.
    pub cells: Vec<u64>,
}

/// How a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// A few measured points, connected, with marks and interval whiskers.
    Lines,
    /// Many points, drawn as lines only.
    Curves,
    /// Counts as colours.
    Heat,
}

/// A chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// Short title.
    pub title: String,
    /// A sentence that explains the chart; may be empty.
    #[serde(skip)]
    pub caption: String,
    /// How it is drawn.
    pub kind: ChartKind,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Positions on x.
    #[serde(serialize_with = "numbers")]
    pub xs: Vec<f64>,
    /// The lines.
    pub series: Vec<Series>,
    /// Areas between two series, by their indexes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fills: Vec<(usize, usize)>,
    /// Shaded ranges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<ShadedSpan>,
    /// Vertical lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// Data of a heat map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heat: Option<Heat>,
    /// Charts with the same name share their cursor and their range of x.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<String>,
    /// Range of x; `None` for the range of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stretch: Option<(f64, f64)>,
    /// Height in CSS pixels.
    pub height: u32,
}

impl Chart {
    /// A chart of a few measured points.
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

    /// Sets the sentence below the chart.
    pub fn caption(self, caption: impl Into<String>) -> Chart {
        Chart {
            caption: caption.into(),
            ..self
        }
    }

    /// Moves the chart onto a timeline shared with others.
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

/// Rounds to five significant figures: more than a screen can show, and the file stays small.
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

/// Serializes integers without ".0".
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

    /// A logarithmic axis says so in its title, and only there.
    #[test]
    fn logarithmic_axes_are_named_so() {
        let axis =
            |scale| serde_json::to_value(Axis::new("queue depth", Unit::Count, scale)).unwrap();
        assert_eq!(axis(Scale::Log)["title"], "queue depth (log scale)");
        assert_eq!(axis(Scale::Log)["label"], "queue depth");
        assert_eq!(axis(Scale::Linear)["title"], "queue depth");
    }

    /// Data is rounded, and values that are not numbers become gaps.
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
