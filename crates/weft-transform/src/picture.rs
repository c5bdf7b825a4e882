//! Pictures of networks: what is read on the left, what comes of it on the right.

use crate::Network;
use crate::network::Part;
use std::fmt::Write;

/// A picture in the language of Graphviz; `files` name what is read. `shown` makes text printable.
pub fn dot(network: &Network, files: &[String], shown: fn(&str) -> String) -> String {
    let picture = Picture::of(network, files, shown);
    let mut text = String::from("digraph network {\n    rankdir=LR;\n    node [shape=box, fontname=\"monospace\"];\n");
    for (number, shape) in picture.shapes.iter().enumerate() {
        let label = shape.label.replace('\\', "\\\\").replace('"', "\\\"");
        let style = if shape.is_file { ", shape=ellipse" } else { "" };
        writeln!(text, "    n{number} [label=\"{label}\"{style}];").expect("memory takes it");
    }
    for (from, to) in &picture.arrows {
        writeln!(text, "    n{from} -> n{to};").expect("memory takes it");
    }
    text + "}\n"
}

/// A picture as SVG (W3C SVG 1.1); `files` name what is read. `shown` makes text printable.
pub fn svg(network: &Network, files: &[String], shown: fn(&str) -> String) -> String {
    let picture = Picture::of(network, files, shown);
    let right = |shape: &Shape| shape.x + shape.width();
    let width = picture.shapes.iter().map(right).max().unwrap_or(0) + GAP;
    let rows = picture.shapes.iter().map(|shape| shape.row + 1).max().unwrap_or(1);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{}\" font-family=\"monospace\" \
         font-size=\"14\">\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n",
        rows * ROW + GAP
    );
    for (from, to) in &picture.arrows {
        let (from, to) = (&picture.shapes[*from], &picture.shapes[*to]);
        let (x1, y1, x2, y2) = (right(from), from.middle(), to.x, to.middle());
        writeln!(
            text,
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"black\" marker-end=\"url(#tip)\"/>"
        )
        .expect("memory takes it");
    }
    for shape in &picture.shapes {
        let (x, y, width) = (shape.x, shape.middle() - BOX / 2, shape.width());
        let round = if shape.is_file { BOX / 2 } else { 4 };
        let label = shape.label.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BOX}\" rx=\"{round}\" fill=\"white\" stroke=\"black\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            x + width / 2,
            shape.middle() + 5
        )
        .expect("memory takes it");
    }
    text + "</svg>\n"
}

/// Units of an SVG between shapes, and of shapes: their height, that of a row of them, the width of
/// a character.
const GAP: usize = 30;
const BOX: usize = 30;
const ROW: usize = 50;
const CHARACTER: usize = 9;

struct Picture<'a> {
    files: &'a [String],
    shown: fn(&str) -> String,
    shapes: Vec<Shape>,
    arrows: Vec<(usize, usize)>,
    /// Rows that are taken.
    rows: usize,
}

struct Shape {
    label: String,
    is_file: bool,
    x: usize,
    row: usize,
}

impl Shape {
    fn width(&self) -> usize {
        self.label.chars().count() * CHARACTER + 20
    }

    fn middle(&self) -> usize {
        GAP / 2 + self.row * ROW + ROW / 2
    }
}

impl<'a> Picture<'a> {
    fn of(network: &Network, files: &'a [String], shown: fn(&str) -> String) -> Picture<'a> {
        let mut picture = Picture { files, shown, shapes: Vec::new(), arrows: Vec::new(), rows: 0 };
        let last = picture.chain(network.parts(), None);
        let end = picture.shape("result".into(), true, &last, None);
        debug_assert!(end < picture.shapes.len(), "it is the last one");
        picture
    }

    /// Adds a shape after `before`; in `row`, or where the first of those lies, or in one of its
    /// own.
    fn shape(&mut self, label: String, is_file: bool, before: &[usize], row: Option<usize>) -> usize {
        let x = before.iter().map(|shape| self.shapes[*shape].x + self.shapes[*shape].width()).max().unwrap_or(0) + GAP;
        let row = row.or_else(|| before.first().map(|shape| self.shapes[*shape].row)).unwrap_or(self.rows);
        self.rows = self.rows.max(row + 1);
        self.shapes.push(Shape { label, is_file, x, row });
        let number = self.shapes.len() - 1;
        self.arrows.extend(before.iter().map(|before| (*before, number)));
        number
    }

    /// Adds what follows `before`, or what it reads if nothing is before it. Tells what it ends
    /// with.
    fn chain(&mut self, parts: &[Part], before: Option<(usize, usize)>) -> Vec<usize> {
        let (mut last, mut row): (Vec<usize>, Option<usize>) =
            before.map_or((Vec::new(), None), |(b, r)| (vec![b], Some(r)));
        for part in parts {
            let next = match part {
                Part::File { number } => {
                    let name = self.files.get(*number).cloned().unwrap_or_else(|| format!("${}", number + 1));
                    self.shape(name, true, &[], row)
                }
                Part::Stage { text, .. } => {
                    self.begin(&mut last, row);
                    self.shape((self.shown)(text), false, &last, row)
                }
                Part::Join { join, branches } => {
                    if branches.iter().any(|branch| !crate::run::reads_files(branch)) {
                        self.begin(&mut last, row);
                    }
                    let mut ends = Vec::new();
                    for (number, branch) in branches.iter().enumerate() {
                        let own = if number == 0 {
                            last.first().map_or(self.rows, |l| self.shapes[*l].row)
                        } else {
                            self.rows
                        };
                        let reads_files = crate::run::reads_files(branch);
                        let from = last.first().filter(|_| !reads_files).map(|last| (*last, own));
                        ends.extend(self.chain(branch, from));
                        self.rows = self.rows.max(own + 1);
                    }
                    self.shape((self.shown)(&join.to_string()), false, &ends, row)
                }
            };
            last = vec![next];
            row = Some(self.shapes[next].row);
        }
        last
    }

    /// Adds the network's input, which a chain reads if it names no file.
    fn begin(&mut self, last: &mut Vec<usize>, row: Option<usize>) {
        if last.is_empty() {
            let name = if self.files.is_empty() { "input".into() } else { self.files.join(", ") };
            last.push(self.shape(name, true, &[], row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<String> {
        vec!["/a \"b\"".into(), "/c".into()]
    }

    #[test]
    fn each_stage_and_file_is_there_once_and_arrows_lead_from_left_to_right() {
        let network =
            Network::parse("merge($1 | sort, $2 | upper | sort) | concat(grep 'a\"', wc -l) | nl").expect("one");
        let files = files();
        let shown = |text: &str| text.replace('a', "<>");
        let picture = Picture::of(&network, &files, str::to_owned);
        for (from, to) in &picture.arrows {
            let (from, to) = (&picture.shapes[*from], &picture.shapes[*to]);
            assert!(from.x + from.width() < to.x, "{} and {}", from.label, to.label);
        }
        let mut places: Vec<_> = picture.shapes.iter().map(|shape| (shape.row, shape.x)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), picture.shapes.len());
        assert!(dot(&network, &files, shown).contains("grep '<>"), "text is made printable");
        let dot = dot(&network, &files, str::to_owned);
        assert_eq!(dot.matches(" -> ").count(), picture.arrows.len());
        assert!(dot.contains(r#"label="/a \"b\"", shape=ellipse"#) && dot.contains(r#"label="grep 'a\"'""#), "{dot}");
        let svg = svg(&network, &files, shown);
        assert_eq!(svg.matches("<rect").count(), picture.shapes.len());
    }
}
