//! Named networks: `@name` stands for the text of one. They are put in before a network is read, so
//! that what was made with one stays what it was.

pub use crate::language::is_name;

use crate::language::{self, Element, NetworkError, Word};

/// Deepest nesting of names in the networks that names stand for.
const DEPTH_MAX: usize = 16;

/// Longest network, in bytes, with all that names stand for.
const BYTES_MAX: usize = 64 << 10;

/// `text` with what its names stand for, which `named` tells. Errors point at the place in `text`.
pub fn expand(text: &str, named: &dyn Fn(&str) -> Option<String>) -> Result<String, NetworkError> {
    expand_at(text, named, 0)
}

fn expand_at(text: &str, named: &dyn Fn(&str) -> Option<String>, depth: usize) -> Result<String, NetworkError> {
    let mut names = Vec::new();
    collect(language::parse(text)?, &mut names);
    let mut expanded = text.to_owned();
    // From the last to the first, so that places stay what they are.
    for word in names.into_iter().rev() {
        let name = &word.text[1..];
        let wrong = |message: String| NetworkError::new(message, word.at);
        if depth >= DEPTH_MAX {
            return Err(wrong("names stand for each other in circles, or too deep".into()));
        }
        let inner = named(name).ok_or_else(|| wrong(format!("there is no network '@{name}'")))?;
        check(&inner).map_err(|error| wrong(format!("'@{name}': {error} of it")))?;
        let inner = expand_at(&inner, named, depth + 1).map_err(|error| wrong(format!("'@{name}': {error} of it")))?;
        if expanded.len() + inner.len() > BYTES_MAX {
            return Err(wrong(format!("with all that names stand for, a network has at most {BYTES_MAX} bytes")));
        }
        // A comma that follows is none of its last word's.
        let blank = if expanded[word.end..].starts_with(',') { " " } else { "" };
        expanded.replace_range(word.at..word.end, &format!("{inner}{blank}"));
    }
    Ok(expanded)
}

/// Checks that `text` can be named: it can be read, and is the same among others in parentheses.
pub fn check(text: &str) -> Result<(), NetworkError> {
    let alone = language::parse(text)?;
    let within = language::parse(&format!("concat({text} , identity)"));
    let words = |chain: &[Element]| {
        let mut told = String::new();
        tell(chain, &mut told);
        told
    };
    match within.as_deref() {
        Ok([Element::Join { branches, .. }]) if branches.len() == 2 && words(&branches[0]) == words(&alone) => Ok(()),
        Err(error) if !text.contains(',') => Err(error.clone()),
        _ => Err(NetworkError::new("a comma at the end of a word must be quoted", 0)),
    }
}

/// The names in `chain`, in their order.
fn collect(chain: Vec<Element>, names: &mut Vec<Word>) {
    for element in chain {
        match element {
            Element::Named(word) => names.push(word),
            Element::Join { branches, .. } => branches.into_iter().for_each(|branch| collect(branch, names)),
            Element::Stage(_) | Element::File { .. } => {}
        }
    }
}

/// Writes down what `chain` is, wherever it stands.
fn tell(chain: &[Element], told: &mut String) {
    for element in chain {
        match element {
            Element::Named(word) => told.push_str(&word.text),
            Element::File { number } => told.push_str(&format!("${number}")),
            Element::Stage(call) => {
                told.push_str(&format!("{:?}", call.name.text));
                call.arguments.iter().for_each(|word| told.push_str(&format!(" {:?}", word.text)));
            }
            Element::Join { how, branches } => {
                told.push_str(&how.text);
                for branch in branches {
                    told.push('(');
                    tell(branch, told);
                    told.push(')');
                }
            }
        }
        told.push('|');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, String> {
        let named = |name: &str| {
            let text = match name {
                "errors" => "zstd -d | grep ERROR",
                "last" => "@errors | tail -3",
                "sorted" => "merge($1 | sort, @last)",
                "self" => "upper | @self",
                "comma" => "tr a ,",
                "quoted" => "tr a ','",
                "wrong" => "cut |",
                _ => return None,
            };
            Some(text.to_owned())
        };
        expand(text, &named).map_err(|error| error.to_string())
    }

    #[test]
    fn names_stand_for_networks_wherever_a_stage_may_be() {
        assert_eq!(expanded("upper | grep @x").unwrap(), "upper | grep @x");
        assert_eq!(expanded("@errors").unwrap(), "zstd -d | grep ERROR");
        assert_eq!(expanded("gzip -d|@last|wc -l").unwrap(), "gzip -d|zstd -d | grep ERROR | tail -3|wc -l");
        assert_eq!(expanded("@sorted | uniq").unwrap(), "merge($1 | sort, zstd -d | grep ERROR | tail -3) | uniq");
        assert_eq!(
            expanded("tee(@quoted,@last) | concat").unwrap(),
            "tee(tr a ',' ,zstd -d | grep ERROR | tail -3) | concat"
        );
    }

    #[test]
    fn what_is_wrong_with_a_name_is_told_where_it_is_used() {
        assert_eq!(expanded("upper | @none").unwrap_err(), "there is no network '@none', at byte 8");
        assert!(expanded("upper | @self").unwrap_err().contains("in circles"));
        assert!(expanded("@comma").unwrap_err().contains("a comma at the end of a word must be quoted"));
        assert!(expanded("@wrong").unwrap_err().starts_with("'@wrong': a stage is missing"));
        assert!(expanded("@").unwrap_err().contains("a network's name follows"));
        assert!(crate::Network::parse("@errors").is_err());
        assert!(is_name("a-B_9") && !is_name("") && !is_name("a/b") && !is_name(&"a".repeat(65)));
    }
}
