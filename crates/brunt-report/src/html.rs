//! Renders a page as one HTML file with style, script and data inside; it loads nothing else.
//!
//! The rule: the template escapes every inserted text, `embed` escapes data, and the file's policy runs no script but
//! ours, so that even text that was inserted unescaped runs nothing.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::chart::Chart;
use crate::page::{
    Bars, Block, Card, CardPart, Cell, Choice, Notice, Page, PageTable, Section, Tone,
};

const STYLE: &str = concat!(
    include_str!("../assets/uPlot.min.css"),
    "\n",
    include_str!("../assets/page.css")
);
const SCRIPT: &str = concat!(
    include_str!("../assets/prelude.js"),
    include_str!("../assets/uPlot.min.js"),
    "\n",
    include_str!("../assets/page.js")
);
const LICENCE: &str = include_str!("../assets/LICENCE");

/// Renders a page as the text of its file.
pub fn render(page: &Page) -> String {
    let mut body = Body::default();
    let sections: Vec<Markup> = page
        .sections
        .iter()
        .map(|section| body.section(section))
        .collect();
    let data = embed(&Data {
        charts: body.charts,
    });
    let policy = format!(
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{}'; base-uri 'none'; form-action \
         'none'",
        base64(&Sha256::digest(SCRIPT)),
    );
    let glance = &page.glance;
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(page.made_by);
                @if let Some(seconds) = page.refresh_s { meta http-equiv="refresh" content=(seconds); }
                title { (page.title) " – " (page.kind) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#glance" { "Skip to results" }
                header.top {
                    p.brand { b { "Brunt" } " " (page.kind.to_lowercase()) " report" }
                    button #theme type="button" aria-label="Light or dark" { span aria-hidden="true" { "◐" } " " span #theme-name { "Auto" } }
                }
                main {
                    h1 { (page.title) }
                    @if !page.description.is_empty() { p.lede { (page.description) } }
                    section #glance aria-label="At a glance" {
                        (notices(&glance.notices))
                        div.single[matches!(&glance.cards[..], [card] if card.parts.is_empty())] {
                            @if !glance.cards.is_empty() {
                                div.cards { @for card in &glance.cards { (self::card(card)) } }
                            }
                            (facts(&glance.facts))
                        }
                    }
                    noscript { p.notice.warning { "Charts need JavaScript; the tables work without it." } }
                    nav aria-label="Contents" {
                        @for (index, section) in page.sections.iter().enumerate() {
                            a href={ "#s" (index) } { (section.title) }
                        }
                    }
                    @for (index, section) in sections.iter().enumerate() {
                        section id={ "s" (index) } { (section) }
                    }
                }
                footer {
                    p { "Made by " (page.made_by) ". This file is self-contained: it can be mailed, archived and printed." }
                    details { summary { "Charts by uPlot, MIT licence" } pre { (LICENCE) } }
                }
                script #data type="application/json" { (PreEscaped(data)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    markup.into_string()
}

#[derive(Serialize)]
struct Data<'a> {
    charts: Vec<&'a Chart>,
}

/// JSON that is safe within a script element: nothing in it can close the element or open a comment. The characters
/// that could do so occur only in strings, where they can be written as escapes.
fn embed(data: &impl Serialize) -> String {
    let text = serde_json::to_string(data).expect("chart data is plain");
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk
            .iter()
            .fold(0u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() {
                digit as char
            } else {
                '='
            });
        }
    }
    text
}

fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Note => "note",
        Tone::Warning => "warning",
        Tone::Bad => "bad",
    }
}

fn notices(notices: &[Notice]) -> Markup {
    html! {
        @if !notices.is_empty() {
            ul.notices {
                @for notice in notices {
                    li class={ "notice " (tone(notice.tone)) } { (notice.text) }
                }
            }
        }
    }
}

fn card(card: &Card) -> Markup {
    html! {
        div.card.wide[!card.parts.is_empty()] {
            h3 { (card.name) }
            @if !card.parts.is_empty() {
                div.parts { @for part in &card.parts { (self::part(part)) } }
            }
            @if !card.value.is_empty() { p.value { (card.value) " " span.pm { (card.uncertainty) } } }
            (figures(&card.details))
        }
    }
}

fn part(part: &CardPart) -> Markup {
    html! {
        div.part.broken[part.broken] {
            h4 { (part.name) " " span.pm { (part.when) } }
            p.value { (part.value) " " span.pm { (part.uncertainty) } }
            (figures(&part.details))
        }
    }
}

fn figures(list: &[(String, String)]) -> Markup {
    html! {
        @if !list.is_empty() {
            dl { @for (word, figure) in list { div { dt { (word) } dd { (figure) } } } }
        }
    }
}

fn facts(facts: &[(String, String)]) -> Markup {
    html! {
        @if !facts.is_empty() {
            dl.facts { @for (word, text) in facts { div { dt { (word) } dd { (text) } } } }
        }
    }
}

/// State of rendering: the charts found so far.
#[derive(Default)]
struct Body<'a> {
    charts: Vec<&'a Chart>,
}

impl<'a> Body<'a> {
    fn section(&mut self, section: &'a Section) -> Markup {
        let blocks: Vec<Markup> = section
            .blocks
            .iter()
            .map(|block| self.block(block))
            .collect();
        html! { h2 { (section.title) } @for block in blocks { (block) } }
    }

    fn block(&mut self, block: &'a Block) -> Markup {
        match block {
            Block::Heading(text) => html! { h3 { (text) } },
            Block::Prose(text) => html! { p { (text) } },
            Block::Missing(text) => html! { p.missing { (text) } },
            Block::Notices(list) => notices(list),
            Block::Chart(chart) => self.chart(chart),
            Block::Charts(charts) => {
                let charts: Vec<Markup> = charts.iter().map(|chart| self.chart(chart)).collect();
                html! { div.grid { @for chart in charts { (chart) } } }
            }
            Block::Bars(bars) => self::bars(bars),
            Block::Flame(graph) => graph.render(),
            Block::Table(table) => self::table(table),
            Block::Facts(list) => facts(list),
            Block::Choice(choice) => self.choice(choice),
            Block::Code(purpose, text) => {
                html! { p.purpose { (purpose) } pre tabindex="0" { (text) } }
            }
        }
    }

    fn chart(&mut self, chart: &'a Chart) -> Markup {
        let index = self.charts.len();
        self.charts.push(chart);
        html! {
            figure.chart data-chart=(index) {
                figcaption { b { (chart.title) } }
                div.legend {}
                div.plot tabindex="0" role="group" aria-roledescription="chart"
                    aria-label={ (chart.title) ": " (chart.y.title()) " against " (chart.x.title()) ". Arrow keys read values; a table follows." }
                    style={ "height:" (chart.height) "px" } {}
                p.sr aria-live="polite" {}
                @if !chart.caption.is_empty() { p.caption { (chart.caption) } }
                details.data { summary { "Data" } }
            }
        }
    }

    fn choice(&mut self, choice: &'a Choice) -> Markup {
        let mut options = Vec::new();
        for (_, blocks) in &choice.options {
            options.push(
                blocks
                    .iter()
                    .map(|block| self.block(block))
                    .collect::<Vec<Markup>>(),
            );
        }
        html! {
            div.choice {
                @if options.len() > 1 {
                    label.pick { (choice.label) " "
                        select { @for (name, _) in &choice.options { option { (name) } } }
                    }
                }
                @for (index, blocks) in options.iter().enumerate() {
                    div.option hidden[index > 0] {
                        p.chosen { (choice.label) ": " (choice.options[index].0) }
                        @for block in blocks { (block) }
                    }
                }
            }
        }
    }
}

fn bars(bars: &Bars) -> Markup {
    let whole = |parts: &[f64]| parts.iter().sum::<f64>();
    let ends = bars.bars.iter().map(|bar| {
        bar.interval
            .map_or(0.0, |(_, high)| high)
            .max(whole(&bar.parts))
    });
    let most = ends.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let percent = |value: f64| format!("{:.2}%", (value / most * 100.0).clamp(0.0, 100.0));
    html! {
        figure.bars {
            figcaption { b { (bars.title) } }
            @if !bars.parts.is_empty() {
                div.legend { @for (index, part) in bars.parts.iter().enumerate() {
                    span.key { i class={ "swatch c" (index % 8) } {} (part) }
                } }
            }
            table {
                caption.sr { (bars.title) }
                tbody { @for bar in &bars.bars {
                    tr {
                        th scope="row" { (bar.name) }
                        td.track aria-hidden="true" {
                            div {
                                @for (index, part) in bar.parts.iter().enumerate() {
                                    i class={ "c" (index % 8) } style={ "width:" (percent(*part)) } {}
                                }
                                @if let Some((low, high)) = bar.interval {
                                    u style={ "left:" (percent(low)) ";width:" (percent(high - low.max(0.0))) } {}
                                }
                            }
                        }
                        td.num { (bar.shown) @if !bar.uncertainty.is_empty() { " " span.pm { (bar.uncertainty) } } }
                    }
                } }
            }
            @if !bars.caption.is_empty() { p.caption { (bars.caption) } }
        }
    }
}

fn table(table: &PageTable) -> Markup {
    let numeric = |column: usize| {
        let mut cells = table.rows.iter().filter_map(|row| row.get(column));
        cells.any(|cell| matches!(cell, Cell::Number(_) | Cell::Estimate(..)))
    };
    // Short names stay on one line; long ones may wrap, but not into very narrow columns.
    let long = |row: &Vec<Cell>| matches!(row.first(), Some(Cell::Text(text)) if text.chars().count() > 28);
    let long = table.rows.iter().any(long);
    let inner = html! {
        div.scroll tabindex="0" role="group" aria-label=(table.caption) {
            table.long[long] {
                caption.sr[table.folded] { (table.caption) }
                thead { tr { @for (index, column) in table.columns.iter().enumerate() {
                    th.num[numeric(index)] scope="col" { (column) }
                } } }
                tbody { @for row in &table.rows {
                    tr { @for (index, cell) in row.iter().enumerate() {
                        @if index == 0 { th.num[numeric(0)] scope="row" { (self::cell(cell)) } }
                        @else { td.num[numeric(index)] { (self::cell(cell)) } }
                    } }
                } }
            }
        }
    };
    html! {
        @if table.folded { details.folded { summary { (table.caption) } (inner) } } @else { (inner) }
    }
}

fn cell(cell: &Cell) -> Markup {
    match cell {
        Cell::Text(text) | Cell::Number(text) => html! { (text) },
        Cell::Estimate(value, uncertainty) => html! { (value) " " span.pm { (uncertainty) } },
        Cell::Verdict(weight, word) => {
            html! { span class={ "verdict " (tone(*weight)) } { (word) } }
        }
        Cell::Empty => html! { span.none { "–" } },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Scale, Series, SeriesRole};
    use crate::format::Unit;

    const EVIL: &str = "</script><script>alert(1)</script><!--\u{2028}\"'&";

    /// A name that looks like markup stays text, both in the page and in its data.
    #[test]
    fn names_do_not_break_out() {
        let axis = || Axis::new(EVIL, Unit::Count, Scale::Linear);
        let series = Series::new(EVIL, SeriesRole::Nominal(0), vec![Some(1.0)]);
        let chart = Chart::lines(EVIL, axis(), axis(), vec![1.0], vec![series]).caption(EVIL);
        let mut section = Section::new(EVIL);
        section.prose(EVIL);
        section.chart(chart);
        section.blocks.push(Block::Code(EVIL.into(), EVIL.into()));
        let options = vec![(EVIL.into(), vec![Block::Missing(EVIL.into())])];
        section.blocks.push(Block::Choice(Choice {
            label: EVIL.into(),
            options,
        }));
        let rows = vec![vec![Cell::text(EVIL)]];
        section.blocks.push(Block::Table(PageTable {
            caption: EVIL.into(),
            columns: vec![EVIL.into()],
            rows,
            folded: true,
        }));
        let mut page = Page {
            title: EVIL.into(),
            kind: EVIL.into(),
            description: EVIL.into(),
            ..Page::default()
        };
        page.sections.push(section);
        let text = render(&page);
        assert_eq!(text.matches("</script>").count(), 2, "ours only");
        assert!(!text.contains("<script>alert") && !text.contains("<!--\u{2028}"));
        let data = text
            .split_once("application/json\">")
            .unwrap()
            .1
            .split_once("</script>")
            .unwrap()
            .0;
        let read: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(read["charts"][0]["series"][0]["name"], EVIL);
    }

    /// A page loads nothing from the network or from other files.
    #[test]
    fn a_page_is_alone() {
        let text = render(&Page::default());
        assert!(text.contains("default-src 'none'"));
        for load in ["src=", "@import", "url("] {
            assert!(!text.contains(load), "{load}");
        }
    }

    /// The policy's hashes use the base64 alphabet that browsers expect (RFC 4648, section 4).
    #[test]
    fn base64_of_the_standard() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
