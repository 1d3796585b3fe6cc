//! A page as data: a summary box, then sections of prose, tables and charts. [`crate::html::render`] renders it;
//! [`crate::experiment`] fills a page from results.
//!
//! The rule: text is plain text, never markup, whatever characters a target's name contains.

use crate::chart::Chart;
use crate::flame::FlameGraph;

/// A whole page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Kind of page: "Experiment".
    pub kind: String,
    /// Its title.
    pub title: String,
    /// One or two sentences; may be empty.
    pub description: String,
    /// The summary box.
    pub glance: Glance,
    /// The sections in order.
    pub sections: Vec<Section>,
    /// Program and version, for the footer.
    pub made_by: String,
    /// For a page of something still running: seconds after which a browser reloads it.
    pub refresh_s: Option<u32>,
}

/// The summary box at the top of a page.
#[derive(Clone, Debug, Default)]
pub struct Glance {
    /// The measured target and its environment: labels, each with a sentence.
    pub facts: Vec<(String, String)>,
    /// Headline figures.
    pub cards: Vec<Card>,
    /// Caveats a reader needs before trusting the figures.
    pub notices: Vec<Notice>,
}

/// A headline figure.
#[derive(Clone, Debug, Default)]
pub struct Card {
    /// Subject of the figure: a target.
    pub name: String,
    /// The figure with its unit.
    pub value: String,
    /// Its uncertainty.
    pub uncertainty: String,
    /// More figures and their context, each with a label.
    pub details: Vec<(String, String)>,
    /// Figures for consecutive phases, side by side; a card with such parts is as wide as the page.
    pub parts: Vec<CardPart>,
}

/// A card's figure for one phase.
#[derive(Clone, Debug, Default)]
pub struct CardPart {
    /// The phase's name: "before".
    pub name: String,
    /// The phase's start and end.
    pub when: String,
    /// Whether a fault was present.
    pub broken: bool,
    /// The figure with its unit.
    pub value: String,
    /// Its uncertainty.
    pub uncertainty: String,
    /// More figures, each with a label.
    pub details: Vec<(String, String)>,
}

/// Severity of a notice or verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Everything is as it should be.
    Good,
    /// Worth knowing.
    Note,
    /// Makes the figures less reliable.
    Warning,
    /// Makes the figures useless.
    Bad,
}

/// A sentence with its severity.
#[derive(Clone, Debug)]
pub struct Notice {
    /// Severity.
    pub tone: Tone,
    /// The sentence.
    pub text: String,
}

impl Notice {
    /// Creates a notice from a sentence and its severity.
    pub fn new(tone: Tone, text: impl Into<String>) -> Notice {
        Notice {
            tone,
            text: text.into(),
        }
    }
}

/// A part of the page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its heading, which also appears in the table of contents.
    pub title: String,
    /// Contents of the section.
    pub blocks: Vec<Block>,
}

impl Section {
    /// An empty section.
    pub fn new(title: impl Into<String>) -> Section {
        Section {
            title: title.into(),
            blocks: Vec::new(),
        }
    }

    /// Adds a paragraph.
    pub fn prose(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Prose(text.into()));
    }

    /// Adds a chart, or a sentence if the chart would be empty.
    pub fn chart(&mut self, chart: Chart) {
        self.blocks.push(Block::of(chart));
    }

    /// Adds a table.
    pub fn table(&mut self, table: PageTable) {
        self.blocks.push(Block::Table(table));
    }
}

/// A block of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// A subheading.
    Heading(String),
    /// A paragraph.
    Prose(String),
    /// A note on missing data, with the reason.
    Missing(String),
    /// A list of sentences with their severity.
    Notices(Vec<Notice>),
    /// A chart of full width.
    Chart(Box<Chart>),
    /// Charts side by side if there is room.
    Charts(Vec<Chart>),
    /// Horizontal bars, one below the other.
    Bars(Bars),
    /// A flame graph: which functions called which while the CPU was busy.
    Flame(Box<FlameGraph>),
    /// A table.
    Table(PageTable),
    /// Labels and their values.
    Facts(Vec<(String, String)>),
    /// Several alternatives, of which one is shown, chosen from a list.
    Choice(Choice),
    /// A title that says what the text is for, and the preformatted text.
    Code(String, String),
}

impl Block {
    /// A chart, or a sentence if the chart would be empty.
    pub fn of(chart: Chart) -> Block {
        if chart.is_empty() {
            return Block::Missing(format!("{}: no data recorded.", chart.title));
        }
        Block::Chart(Box::new(chart))
    }
}

/// Bars with interval whiskers.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// Short title.
    pub title: String,
    /// A sentence below; may be empty.
    pub caption: String,
    /// Bars from top to bottom.
    pub bars: Vec<Bar>,
    /// Meaning of the bars' parts, in order; empty if bars have only one part.
    pub parts: Vec<String>,
}

/// One bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Name of the bar.
    pub name: String,
    /// Its parts, one after the other; most bars have one.
    pub parts: Vec<f64>,
    /// The 95 % interval of the whole.
    pub interval: Option<(f64, f64)>,
    /// The value with its unit.
    pub shown: String,
    /// Its uncertainty; may be empty.
    pub uncertainty: String,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct PageTable {
    /// Description for screen readers, also shown above.
    pub caption: String,
    /// Names of columns; units are in the cells.
    pub columns: Vec<String>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// Whether it is collapsed at first.
    pub folded: bool,
}

impl PageTable {
    /// An expanded table.
    pub fn new(
        caption: impl Into<String>,
        columns: &[&str],
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) -> PageTable {
        let columns = columns.iter().map(|name| name.to_string()).collect();
        PageTable {
            caption: caption.into(),
            columns,
            rows: rows.into_iter().collect(),
            folded: false,
        }
    }

    /// A table that is collapsed at first.
    pub fn folded(self) -> PageTable {
        PageTable {
            folded: true,
            ..self
        }
    }
}

/// A cell.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Text, aligned to the left.
    Text(String),
    /// A number, aligned to the right.
    Number(String),
    /// A number with its uncertainty.
    Estimate(String, String),
    /// A verdict in a word.
    Verdict(Tone, String),
    /// Nothing was measured.
    Empty,
}

impl Cell {
    /// A cell of text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// A cell with a number.
    pub fn number(text: impl Into<String>) -> Cell {
        Cell::Number(text.into())
    }
}

/// Alternatives of which the page shows one at a time.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Label of the choice.
    pub label: String,
    /// Name and contents of each alternative.
    pub options: Vec<(String, Vec<Block>)>,
}
