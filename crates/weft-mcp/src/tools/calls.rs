//! The runs that answer calls.

use super::Kind;
use super::arguments::Arguments;
use crate::Served;
use crate::program::{ANSWER_MAX, Said, run};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::JsonObject;
use serde_json::{Value, json};
use weft_transform::Network;

/// Bytes of a file that are read if nothing is said of that, and at most.
const LENGTH: usize = 64 << 10;
const LENGTH_MAX: usize = 1 << 20;

/// Bytes of a file that goes through a network or is searched, at most.
const FILE_MAX: usize = 64 << 20;

/// Changes that are listed if nothing is said of that.
const LIMIT: u64 = 50;

/// An answer: a value, or text.
pub(crate) enum Answer {
    Value(Value),
    Text(String),
}

/// Does what a call of `kind` with the arguments `given` asks for.
///
/// # Errors
/// The reason that it cannot be done, in words.
pub(crate) async fn call(kind: &Kind, given: &JsonObject, served: &Served) -> Result<Answer, String> {
    let arguments = Arguments(given);
    let call = Call { arguments, served };
    match kind.name {
        "list" => call.value(&["ls", "--json"], &["at"], true).await,
        "stat" => call.value(&["ls", "--json", "--directory"], &["at"], true).await,
        "read" => call.read().await,
        "grep" => call.grep().await,
        "diff" => call.diff().await,
        "log" => call.log().await,
        "history" => call.of_volume(&["history", "--json"]).await,
        "deleted" => {
            let subject = call.subject()?;
            call.told(&["undelete", "--json", "--list", &subject]).await
        }
        "digest" => call.digest().await,
        "prove" => call.prove().await,
        "run" => call.network().await,
        "stages" => call.stages().await,
        "snapshot" => call.snapshot().await,
        "restore" => call.restore().await,
        "undelete" => call.value(&flagged("undelete", call.arguments.flag("dry_run")?), &[], true).await,
        _ => Err("there is no such tool".into()),
    }
}

/// The words of a command that changes something, or tells what it would change.
fn flagged(command: &'static str, is_dry: bool) -> Vec<&'static str> {
    let words = [command, "--json"].into_iter();
    words.chain(is_dry.then_some("--dry-run")).collect()
}

struct Call<'a> {
    arguments: Arguments<'a>,
    served: &'a Served,
}

impl Call<'_> {
    /// The path that is asked about, as the program takes it.
    fn subject(&self) -> Result<String, String> {
        let path = self.arguments.text("path")?.unwrap_or_default();
        Ok(format!("{}:{}", self.served.volume, path.trim_start_matches('/')))
    }

    async fn said(&self, words: &[String], input: &[u8], bounds: (u64, usize)) -> Result<Said, String> {
        run(&self.served.program, words, input, bounds).await.map_err(|error| format!("cannot do that: {error}"))
    }

    /// Runs the program, which must succeed; `differs` tells that an exit code of 1 says that what
    /// was compared differs.
    async fn out(&self, words: &[&str], input: &[u8], differs: bool) -> Result<Vec<u8>, String> {
        let words = words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let said = self.said(&words, input, (0, ANSWER_MAX)).await?;
        match said.code {
            _ if said.has_more => Err(format!("the answer has more than {ANSWER_MAX} bytes: ask for less")),
            Some(0) => Ok(said.out),
            Some(1) if differs && said.messages.is_empty() => Ok(said.out),
            _ => Err(said.messages),
        }
    }

    /// The same, of an answer in JSON.
    async fn told(&self, words: &[&str]) -> Result<Answer, String> {
        let out = self.out(words, b"", words[0] == "diff").await?;
        serde_json::from_slice(&out).map(Answer::Value).map_err(|_| "the answer cannot be read".to_owned())
    }

    async fn of_volume(&self, words: &[&str]) -> Result<Answer, String> {
        self.told(&[words, &[&self.served.volume]].concat()).await
    }

    /// Runs `words` with those of `options` that were given, and the path.
    async fn value(&self, words: &[&str], options: &[&str], of_path: bool) -> Result<Answer, String> {
        let given = self.options(options)?;
        let subject = self.subject()?;
        let given = given.iter().map(String::as_str);
        let words = words.iter().copied().chain(given).chain(of_path.then_some(&*subject)).collect::<Vec<_>>();
        self.told(&words).await
    }

    /// The options of the program that arguments of the same names become.
    fn options(&self, names: &[&str]) -> Result<Vec<String>, String> {
        let option = |name: &&str| Ok(self.arguments.text(name)?.map(|value| format!("--{name}={value}")));
        let options = names.iter().map(option).collect::<Result<Vec<_>, String>>()?;
        Ok(options.into_iter().flatten().collect())
    }

    /// The bytes of a file, up to a bound.
    async fn content(&self, bounds: (u64, usize)) -> Result<Said, String> {
        let at = self.options(&["at"])?;
        let words = [vec!["cat".to_owned()], at, vec![self.subject()?]].concat();
        let said = self.said(&words, b"", bounds).await?;
        match said.code {
            None | Some(0) => Ok(said),
            Some(_) => Err(said.messages),
        }
    }

    async fn read(&self) -> Result<Answer, String> {
        let offset = self.arguments.number("offset")?.unwrap_or(0);
        let length =
            self.arguments.number("length")?.map_or(LENGTH, |length| usize::try_from(length).unwrap_or(LENGTH_MAX));
        let said = self.content((offset, length.min(LENGTH_MAX))).await?;
        let (bytes, is_end) = (said.out.len(), !said.has_more);
        let mut told = json!({ "offset": offset, "bytes": bytes, "is_end": is_end });
        match String::from_utf8(said.out) {
            Ok(text) => told["text"] = text.into(),
            Err(error) => told["base64"] = STANDARD.encode(error.as_bytes()).into(),
        }
        Ok(Answer::Value(told))
    }

    /// All of a file, which must not be too long.
    async fn all(&self) -> Result<Vec<u8>, String> {
        let said = self.content((0, FILE_MAX)).await?;
        if said.has_more {
            return Err(format!("the file has more than {FILE_MAX} bytes: read it in parts"));
        }
        Ok(said.out)
    }

    async fn grep(&self) -> Result<Answer, String> {
        let pattern = self.arguments.text("pattern")?.unwrap_or_default().to_owned();
        let case = self.arguments.flag("ignore_case")?.then_some("--ignore-case");
        let words = ["grep", "--line-number"].into_iter().chain(case).chain(["--", &pattern]).collect::<Vec<_>>();
        // Nothing was found, which is no mistake.
        let found = self.out(&words, &self.all().await?, true).await?;
        Ok(Answer::Text(String::from_utf8_lossy(&found).into_owned()))
    }

    async fn diff(&self) -> Result<Answer, String> {
        let moment = |name| Ok::<_, String>(self.arguments.text(name)?.map(|moment| format!("--at={moment}")));
        let (from, to, subject) = (moment("from")?, moment("to")?, self.subject()?);
        let content = self.arguments.flag("content")?;
        let moments = from.iter().chain(&to).map(String::as_str);
        let words = ["diff"].into_iter().chain(moments);
        if content {
            let words = words.chain(["--content", &subject]).collect::<Vec<_>>();
            let told = self.out(&words, b"", true).await?;
            return Ok(Answer::Text(String::from_utf8_lossy(&told).into_owned()));
        }
        self.told(&words.chain(["--json", &subject]).collect::<Vec<_>>()).await
    }

    async fn log(&self) -> Result<Answer, String> {
        let limit = format!("--limit={}", self.arguments.number("limit")?.unwrap_or(LIMIT));
        let is_root = self.arguments.text("path")?.unwrap_or_default().trim_matches('/').is_empty();
        let subject = if is_root { self.served.volume.clone() } else { self.subject()? };
        self.told(&["log", "--json", &limit, &subject]).await
    }

    /// Runs `words` and the path, as of the moment that was given; else as it is now, also where a
    /// daemon has the volume.
    async fn as_of(&self, words: &[&str], more: &[&str]) -> Result<Vec<u8>, String> {
        let (at, subject) = (self.options(&["at"])?, self.subject()?);
        let words = |at: &[String]| {
            let at = at.iter().map(String::as_str);
            let words = words.iter().copied().chain(at).chain(["--", &subject]).chain(more.iter().copied());
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        let run = async |words: Vec<String>| {
            self.out(&words.iter().map(String::as_str).collect::<Vec<_>>(), b"", false).await
        };
        match run(words(&at)).await {
            Err(_) if at.is_empty() => run(words(&["--at=now".to_owned()])).await,
            told => told,
        }
    }

    async fn digest(&self) -> Result<Answer, String> {
        let told = self.as_of(&["digest", "--json"], &[]).await?;
        serde_json::from_slice(&told).map(Answer::Value).map_err(|_| "the answer cannot be read".to_owned())
    }

    async fn prove(&self) -> Result<Answer, String> {
        let holds = self.arguments.text("holds")?.unwrap_or_default();
        let proof = self.as_of(&["prove"], &[holds]).await?;
        Ok(Answer::Text(String::from_utf8_lossy(&proof).into_owned()))
    }

    async fn network(&self) -> Result<Answer, String> {
        let text = self.arguments.text("network")?.unwrap_or_default();
        refuse_code(text)?;
        let out = self.out(&["run", "-n", text], &self.all().await?, false).await?;
        Ok(match String::from_utf8(out) {
            Ok(text) => Answer::Text(text),
            Err(error) => Answer::Value(json!({ "base64": STANDARD.encode(error.as_bytes()) })),
        })
    }

    async fn stages(&self) -> Result<Answer, String> {
        let stage = self.arguments.text("stage")?;
        let words = ["stages", "--"].into_iter().chain(stage).collect::<Vec<_>>();
        let told = self.out(&words, b"", false).await?;
        Ok(Answer::Text(String::from_utf8_lossy(&told).into_owned()))
    }

    async fn snapshot(&self) -> Result<Answer, String> {
        let name = self.arguments.text("name")?.unwrap_or_default();
        self.told(&["snapshot", "create", "--json", "--", &self.served.volume, name]).await
    }

    async fn restore(&self) -> Result<Answer, String> {
        self.value(&flagged("restore", self.arguments.flag("dry_run")?), &["at"], true).await
    }
}

/// Refuses a network that would do more than change the bytes of the file.
fn refuse_code(text: &str) -> Result<(), String> {
    let network = Network::parse(text).map_err(|error| format!("this is no network: {error}"))?;
    match () {
        () if network.is_exported() || !network.modules().is_empty() => {
            Err("a network here runs no commands, libraries or modules".into())
        }
        () if network.has_keys() => Err("a network here has no keys".into()),
        () if network.files() > 0 || network.reads_files() => Err("a network here reads the one file alone".into()),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::refuse_code;

    #[test]
    fn networks_that_do_more_than_change_bytes_are_refused() {
        refuse_code("zstd -d | grep x | head -n 3").expect("harmless");
        for text in ["exec 'rm -rf /'", "rot13 | exec id", "encrypt k", "concat($1, $2)", "no-such-stage", "wasm $1"] {
            assert!(refuse_code(text).is_err(), "{text}");
        }
    }
}
