//! `weft stages`.

use crate::arguments::Stages;
use anyhow::{Result, bail};
use serde_json::json;
use std::process::ExitCode;
use weft_transform::catalog::{self, STAGES};

/// Lists stages, or describes one.
pub fn run(arguments: &Stages) -> Result<ExitCode> {
    let chosen: Vec<_> = match &arguments.name {
        None => STAGES.iter().collect(),
        Some(name) => match catalog::find(name) {
            Some(entry) => vec![entry],
            None if catalog::JOINS.contains(&name.as_str()) => {
                bail!("'{name}' is no stage: it forks or joins chains of them, as docs/reference/networks.md tells")
            }
            None => bail!("there is no stage '{name}' ('weft stages' lists them)"),
        },
    };
    if arguments.json {
        let told = |entry: &&catalog::Entry| {
            json!({
                "name": entry.name,
                "usage": entry.usage,
                "summary": entry.summary,
                "documentation": entry.documentation,
            })
        };
        outln!("{}", json!(chosen.iter().map(told).collect::<Vec<_>>()));
    } else if arguments.name.is_some() {
        for entry in chosen {
            outln!("{}\n    {}\n\n{}", entry.usage, entry.summary, entry.documentation);
        }
    } else {
        for entry in chosen {
            outln!("{:12} {}", entry.name, entry.summary);
        }
    }
    Ok(ExitCode::SUCCESS)
}
