//! Sections of the documents as parts of manual pages: the Markdown that the documents use becomes
//! man(7). It knows headings, paragraphs, lists, tables, indented text, and inline marks.

/// Returns the part of `document` below the heading `## title`, as it stands there.
pub fn section<'a>(document: &'a str, title: &str) -> Option<&'a str> {
    let heading = format!("\n## {title}\n");
    let start = document.find(&heading)? + heading.len();
    let rest = &document[start..];
    Some(rest.find("\n## ").map_or(rest, |end| &rest[..end]))
}

/// Part of a page that lines belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Text that is filled.
    Text,
    /// Lines as they are.
    Example,
    /// A row of a table comes as a paragraph with a tag.
    Table,
}

/// Returns `text` as man(7) has it. Headings of the second level become sections.
pub fn as_page(text: &str) -> String {
    let (mut page, mut part, mut is_new) = (String::new(), Part::Text, false);
    let mut put = |line: &str| {
        page.push_str(line);
        page.push('\n');
    };
    for (line, next) in text.lines().zip(text.lines().skip(1).chain([""])) {
        let now = match line {
            _ if line.starts_with("    ") => Part::Example,
            // A blank line within an example belongs to it.
            "" if part == Part::Example && next.starts_with("    ") => Part::Example,
            _ if line.starts_with('|') => Part::Table,
            _ => Part::Text,
        };
        if part != now {
            match (part, now) {
                (_, Part::Example) => put(".PP\n.nf\n.RS 4"),
                (Part::Example, _) => put(".RE\n.fi"),
                _ => {}
            }
        }
        match now {
            Part::Example => put(&literal(line.trim_start_matches("    "))),
            Part::Table => row(line, next, &mut put),
            Part::Text => match line {
                "" => {}
                _ if line.starts_with("## ") => put(&format!(".SH \"{}\"", line[3..].to_uppercase())),
                _ if line.starts_with("### ") => put(&format!(".SS \"{}\"", &line[4..])),
                _ if line.starts_with("- ") => put(&format!(".IP \\(bu 2\n{}", filled(&line[2..]))),
                _ => {
                    // After a table or an example, too.
                    if is_new || part != Part::Text {
                        put(".PP");
                    }
                    put(&filled(line.trim_start()));
                }
            },
        }
        is_new = line.is_empty();
        part = now;
    }
    if part == Part::Example {
        put(".RE\n.fi");
    }
    page
}

/// Puts a row of a table: the first column is the tag, the others follow it.
fn row(line: &str, next: &str, put: &mut impl FnMut(&str)) {
    let is_rule = |line: &str| line.starts_with("|--") || line.starts_with("| --");
    if is_rule(line) || is_rule(next) {
        return;
    }
    let line = line.trim().trim_matches('|').replace("\\|", "\u{1}");
    let mut columns = line.split('|').map(|column| filled(&column.trim().replace('\u{1}', "|")));
    let tag = columns.next().unwrap_or_default();
    let rest = columns.filter(|column| !column.is_empty()).collect::<Vec<_>>().join(". ");
    put(&format!(".TP\n{tag}\n{rest}"));
}

/// Returns a line of text, with its inline marks.
fn filled(line: &str) -> String {
    let (mut out, mut rest, mut is_strong) = (String::new(), line, false);
    while let Some(at) = rest.find(['`', '*', '[']) {
        out.push_str(&escaped(&rest[..at]));
        let (mark, after) = rest[at..].split_at(1);
        let taken = match mark {
            "`" => after.split_once('`').map(|(code, after)| (format!("\\fB{}\\fR", escaped(code)), after)),
            "[" => link(after).map(|(text, after)| (filled(text), after)),
            _ => after.strip_prefix('*').map(|after| {
                is_strong = !is_strong;
                (if is_strong { "\\fB" } else { "\\fR" }.to_owned(), after)
            }),
        };
        let (text, after) = taken.unwrap_or_else(|| (escaped(mark), after));
        out.push_str(&text);
        rest = after;
    }
    out.push_str(&escaped(rest));
    guarded(out)
}

/// Returns the text of a link, of which `after` follows the bracket, and the rest.
fn link(after: &str) -> Option<(&str, &str)> {
    let (text, rest) = after.split_once("](")?;
    Some((text, rest.split_once(')')?.1)).filter(|_| !text.contains(['[', ']']))
}

/// Returns a line as it is.
fn literal(line: &str) -> String {
    guarded(escaped(line))
}

/// Returns `text` without what groff(7) would take for something else.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    in_ascii(&text.replace('^', "\\(ha"))
}

/// Returns `page` with its other characters by their names.
pub fn in_ascii(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    for character in page.chars() {
        match character.is_ascii() {
            true => out.push(character),
            false => out.push_str(&format!("\\[u{:04X}]", u32::from(character))),
        }
    }
    out
}

/// Keeps a line that begins with a dot from being a request.
fn guarded(line: String) -> String {
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Top\n\nAbout.\n\n## One\n\nText with `a-b` and **bold** and [a link](x.md#y).\nMore.\n\n- item\n  of two\n\n    code \\ $1\n\n    'x'\n\nEnd.\n\n| a | b |\n|---|---|\n| `x\\|y` | z | w |\n\n## Two\n\n.dot\n";

    #[test]
    fn marks_of_documents_become_those_of_pages() {
        let page = as_page(section(TEXT, "One").unwrap());
        let expected = ".PP\nText with \\fBa\\-b\\fR and \\fBbold\\fR and a link.\nMore.\n.IP \\(bu 2\nitem\nof two\n.PP\n.nf\n.RS 4\n\
                        code \\e $1\n\n\\(aqx\\(aq\n.RE\n.fi\n.PP\nEnd.\n.TP\n\\fBx|y\\fR\nz. w\n";
        assert_eq!(page, expected);
        assert_eq!(as_page(section(TEXT, "Two").unwrap()), ".PP\n\\&.dot\n");
        assert_eq!(section(TEXT, "Three"), None);
        assert!(as_page(&TEXT[7..]).contains(".SH \"ONE\"\n"));
    }
}
