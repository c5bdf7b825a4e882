//! The tools: names, what they take, and the runs that answer them.

mod arguments;
mod calls;

pub(crate) use calls::{Answer, call};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// A tool.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    about: &'static str,
    /// What it takes: name, type, what it is.
    takes: &'static [(&'static str, &'static str, &'static str)],
    /// The ones of these that it must be given.
    needs: &'static [&'static str],
    /// True if it changes the volume.
    pub(crate) writes: bool,
}

const PATH: (&str, &str, &str) = ("path", "string", "A path in the volume, such as 'src/main.c'; empty: its root");
const AT: (&str, &str, &str) = (
    "at",
    "string",
    "The moment as of which it is read: a time in UTC (2026-11-28T12:30:00), a time ago (-5m, -3d, yesterday), a \
     commit (@1234) or the name of a snapshot; now, if left out",
);

/// All tools.
pub(crate) const ALL: &[Kind] = &[
    Kind {
        name: "list",
        about: "Lists a directory: name, kind, size, permissions, owner and time of change of each entry",
        takes: &[PATH, AT],
        needs: &[],
        writes: false,
    },
    Kind {
        name: "stat",
        about: "Tells kind, size, permissions, owner and time of change of one file or directory",
        takes: &[PATH, AT],
        needs: &["path"],
        writes: false,
    },
    Kind {
        name: "read",
        about: "Reads a file, or a part of it; what is no text comes in base64",
        takes: &[
            PATH,
            AT,
            ("offset", "integer", "The first byte; 0, if left out"),
            ("length", "integer", "Bytes at most, up to 1048576; 65536, if left out"),
        ],
        needs: &["path"],
        writes: false,
    },
    Kind {
        name: "grep",
        about: "Finds lines of a file in which a regular expression finds something, with their numbers",
        takes: &[
            PATH,
            AT,
            ("pattern", "string", "The regular expression"),
            ("ignore_case", "boolean", "Letters are the same in upper and lower case"),
        ],
        needs: &["path", "pattern"],
        writes: false,
    },
    Kind {
        name: "diff",
        about: "Tells what has changed in a file or a tree from one moment to another one, or to now, by names and, \
                with content, by lines",
        takes: &[
            PATH,
            ("from", "string", "The first moment, as 'at' of other tools"),
            ("to", "string", "The second moment; now, if left out"),
            ("content", "boolean", "Also where contents of files differ, by lines"),
        ],
        needs: &["from"],
        writes: false,
    },
    Kind {
        name: "log",
        about: "Lists the changes of a file or directory that history keeps, the last first; of the root all commits",
        takes: &[PATH, ("limit", "integer", "So many at most; 50, if left out")],
        needs: &[],
        writes: false,
    },
    Kind {
        name: "history",
        about: "Tells what the volume keeps of its past: the rule, the first and last commit, snapshots, costs",
        takes: &[],
        needs: &[],
        writes: false,
    },
    Kind {
        name: "deleted",
        about: "Lists what was deleted below a directory and can still be had",
        takes: &[PATH],
        needs: &[],
        writes: false,
    },
    Kind {
        name: "digest",
        about: "Tells the digest of a file or directory: BLAKE3 of all that it holds",
        takes: &[PATH, AT],
        needs: &[],
        writes: false,
    },
    Kind {
        name: "prove",
        about: "Makes a proof that a directory of a digest holds a file or directory of a digest",
        takes: &[PATH, AT, ("holds", "string", "A path in the directory, of which the proof is")],
        needs: &["holds"],
        writes: false,
    },
    Kind {
        name: "run",
        about: "Gives a file through a network of stages, such as 'zstd -d | grep error | head -n 20', and returns \
                what comes out; 'stages' lists them",
        takes: &[
            PATH,
            AT,
            ("network", "string", "The network; it runs no code of its own, reads no other file, and has no keys"),
        ],
        needs: &["path", "network"],
        writes: false,
    },
    Kind {
        name: "stages",
        about: "Lists the stages that networks are made of, or tells exactly what one does",
        takes: &[("stage", "string", "The name of one")],
        needs: &[],
        writes: false,
    },
    Kind {
        name: "snapshot",
        about: "Keeps the volume as it is now, under a name",
        takes: &[("name", "string", "The name")],
        needs: &["name"],
        writes: true,
    },
    Kind {
        name: "restore",
        about: "Makes a file or a directory with all in it what it was at a moment; a second restoration undoes it",
        takes: &[
            PATH,
            ("at", "string", "The moment, as of other tools"),
            ("dry_run", "boolean", "Change nothing, and list what would"),
        ],
        needs: &["path", "at"],
        writes: true,
    },
    Kind {
        name: "undelete",
        about: "Brings back a file or directory that was deleted",
        takes: &[PATH, ("dry_run", "boolean", "Change nothing, and list what would come back")],
        needs: &["path"],
        writes: true,
    },
];

impl Kind {
    /// Describes it as the protocol has it.
    pub(crate) fn described(&self) -> Tool {
        let properties = self
            .takes
            .iter()
            .map(|(name, kind, about)| ((*name).to_owned(), json!({ "type": kind, "description": about })));
        let schema = json!({
            "type": "object",
            "properties": properties.collect::<JsonObject>(),
            "required": self.needs,
            "additionalProperties": false,
        });
        let Value::Object(schema) = schema else { unreachable!("it was made as one") };
        let annotations = ToolAnnotations::new().read_only(!self.writes).destructive(false).open_world(false);
        Tool::new(self.name, self.about, schema).annotate(annotations)
    }

    /// The name of an argument that it does not take, if `given` has one.
    pub(crate) fn unknown<'a>(&self, given: &'a JsonObject) -> Option<&'a str> {
        given.keys().map(String::as_str).find(|name| self.takes.iter().all(|(known, ..)| known != name))
    }

    /// The name of an argument that it must have, if `given` lacks one.
    pub(crate) fn missing(&self, given: &JsonObject) -> Option<&'static str> {
        self.needs.iter().copied().find(|name| !given.contains_key(*name))
    }
}
