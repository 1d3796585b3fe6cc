//! A page as data: a summary box, then sections of prose, tables and charts. [`crate::html::render`] renders
//! it; [`crate::experiment`] fills a page from results.
//!
//! The rule: text is plain text, never markup, whatever characters a target's name has.

use crate::chart::Chart;

/// A whole page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// What kind of page it is: "Experiment".
    pub kind: String,
    /// Its title.
    pub title: String,
    /// A sentence or two; may be empty.
    pub description: String,
    /// The opening box.
    pub glance: Glance,
    /// In order.
    pub sections: Vec<Section>,
    /// Program and version, for the foot.
    pub made_by: String,
}

/// What a reader sees first.
#[derive(Clone, Debug, Default)]
pub struct Glance {
    /// What was measured, on what: a word and its sentence.
    pub facts: Vec<(String, String)>,
    /// Headline figures.
    pub cards: Vec<Card>,
    /// What one has to know before trusting them.
    pub notices: Vec<Notice>,
}

/// A headline figure.
#[derive(Clone, Debug, Default)]
pub struct Card {
    /// Whose: a target.
    pub name: String,
    /// The figure with its unit.
    pub value: String,
    /// Its uncertainty.
    pub uncertainty: String,
    /// Where and beside what: more figures, a word each.
    pub details: Vec<(String, String)>,
    /// Figures side by side, one after the other in time; the card is as wide as the page then.
    pub parts: Vec<CardPart>,
}

/// One of several figures of a card.
#[derive(Clone, Debug, Default)]
pub struct CardPart {
    /// What it is of: "before".
    pub name: String,
    /// From when until when.
    pub when: String,
    /// Whether something was broken then.
    pub broken: bool,
    /// The figure with its unit.
    pub value: String,
    /// Its uncertainty.
    pub uncertainty: String,
    /// More figures, a word each.
    pub details: Vec<(String, String)>,
}

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// Weakens the figures.
    Warning,
    /// Spoils them.
    Bad,
}

/// A sentence with its weight.
#[derive(Clone, Debug)]
pub struct Notice {
    /// Its weight.
    pub tone: Tone,
    /// The sentence.
    pub text: String,
}

impl Notice {
    /// A sentence with its weight.
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
    /// Its heading; the contents list it.
    pub title: String,
    /// What it holds.
    pub blocks: Vec<Block>,
}

impl Section {
    /// An empty one.
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

    /// Adds a chart, or a sentence if it would be empty.
    pub fn chart(&mut self, chart: Chart) {
        self.blocks.push(Block::of(chart));
    }

    /// Adds a table.
    pub fn table(&mut self, table: PageTable) {
        self.blocks.push(Block::Table(table));
    }
}

/// A piece of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// A smaller heading.
    Heading(String),
    /// A paragraph.
    Prose(String),
    /// What is not here, and why.
    Missing(String),
    /// A list of sentences with their weights.
    Notices(Vec<Notice>),
    /// A chart of the full width.
    Chart(Box<Chart>),
    /// Charts side by side where there is room.
    Charts(Vec<Chart>),
    /// Bars that lie, one under the other.
    Bars(Bars),
    /// A table.
    Table(PageTable),
    /// Words and what they stand for.
    Facts(Vec<(String, String)>),
    /// One of several, by a list to choose from.
    Choice(Choice),
    /// Text as it is, with what it is for.
    Code(String, String),
}

impl Block {
    /// A chart, or a sentence if it would be empty.
    pub fn of(chart: Chart) -> Block {
        if chart.is_empty() {
            return Block::Missing(format!("{}: no data recorded.", chart.title));
        }
        Block::Chart(Box::new(chart))
    }
}

/// Bars with their whiskers.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// In a few words.
    pub title: String,
    /// A sentence below; may be empty.
    pub caption: String,
    /// From the top.
    pub bars: Vec<Bar>,
    /// What parts stand for, in their order; empty if bars have one part only.
    pub parts: Vec<String>,
}

/// One bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Whose.
    pub name: String,
    /// Its parts, laid one after the other; most bars have one.
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
    /// What it holds, for those who hear it; shown above.
    pub caption: String,
    /// Names of columns; units go into cells.
    pub columns: Vec<String>,
    /// Each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// Whether it is folded until asked for.
    pub folded: bool,
}

impl PageTable {
    /// One that is shown whole.
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

    /// The same, folded until asked for.
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
    /// Words, to the left.
    Text(String),
    /// A number, to the right.
    Number(String),
    /// A number with its uncertainty.
    Estimate(String, String),
    /// A word of judgement.
    Verdict(Tone, String),
    /// Nothing was measured.
    Empty,
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// A number.
    pub fn number(text: impl Into<String>) -> Cell {
        Cell::Number(text.into())
    }
}

/// Alternatives, of which the page shows one.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// What is chosen.
    pub label: String,
    /// Name and contents.
    pub options: Vec<(String, Vec<Block>)>,
}
