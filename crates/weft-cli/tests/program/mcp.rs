//! `weft mcp`, asked by a client of the protocol.

use crate::place::{Place, on_each_engine};
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::RunningService;
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use std::fs;

/// A client of a server that was started with `words`.
struct Client {
    runtime: tokio::runtime::Runtime,
    service: RunningService<RoleClient, ()>,
}

impl Client {
    fn of(place: &Place, words: &[&str]) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let command = place.command(&[&["mcp"], words].concat());
        let service = runtime.block_on(async {
            ().serve(TokioChildProcess::new(tokio::process::Command::from(command)).unwrap()).await.unwrap()
        });
        Client { runtime, service }
    }

    fn tools(&self) -> Vec<String> {
        let tools = self.runtime.block_on(self.service.list_all_tools()).unwrap();
        tools.into_iter().map(|tool| tool.name.into_owned()).collect()
    }

    fn call(&self, name: &'static str, arguments: Value) -> Result<CallToolResult, String> {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let call = CallToolRequestParams::new(name).with_arguments(arguments);
        self.runtime.block_on(self.service.call_tool(call)).map_err(|error| error.to_string())
    }

    /// The text of a call that succeeds.
    #[track_caller]
    fn text(&self, name: &'static str, arguments: Value) -> String {
        let result = self.call(name, arguments).unwrap();
        let told = serde_json::to_value(&result).unwrap();
        assert_ne!(told["isError"], true, "{told}");
        told["content"][0]["text"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn value(&self, name: &'static str, arguments: Value) -> Value {
        serde_json::from_str(&self.text(name, arguments)).unwrap()
    }

    /// The reason of a call that fails.
    #[track_caller]
    fn refused(&self, name: &'static str, arguments: Value) -> String {
        let told = serde_json::to_value(self.call(name, arguments).unwrap()).unwrap();
        assert_eq!(told["isError"], true, "{told}");
        told["content"][0]["text"].as_str().unwrap().to_owned()
    }

    fn end(self) {
        self.runtime.block_on(self.service.cancel()).unwrap();
    }
}

#[test]
fn an_assistant_reads_a_volume_and_its_past_and_changes_nothing() {
    on_each_engine(&[], |place, volume| {
        fs::create_dir(place.path("m/src")).unwrap();
        fs::write(place.path("m/src/main"), "first line\nsecond\n").unwrap();
        fs::write(place.path("m/bytes"), [0xff, 0, 1]).unwrap();
        place.weft(&["snapshot", "create", volume, "then"]).well();
        fs::write(place.path("m/src/main"), "first line\nsecond\nthird\n").unwrap();
        fs::remove_file(place.path("m/bytes")).unwrap();
        let client = Client::of(place, &[volume]);
        let tools = client.tools();
        assert!(tools.contains(&"read".to_owned()) && !tools.contains(&"restore".to_owned()), "{tools:?}");
        assert_eq!(client.value("list", json!({ "path": "src" }))[0]["name"], "main");
        assert_eq!(client.value("stat", json!({ "path": "/src/main" }))[0]["size"], 24);
        let part = client.value("read", json!({ "path": "src/main", "offset": 6, "length": 4 }));
        assert_eq!((&part["text"], &part["is_end"]), (&"line".into(), &false.into()));
        let then = client.value("read", json!({ "path": "src/main", "at": "then" }));
        assert_eq!((&then["text"], &then["is_end"]), (&"first line\nsecond\n".into(), &true.into()));
        assert_eq!(client.value("read", json!({ "path": "bytes", "at": "then" }))["base64"], "/wAB");
        let found = client.text("grep", json!({ "path": "src/main", "pattern": "IR", "ignore_case": true }));
        assert_eq!(found, "1:first line\n3:third\n");
        assert_eq!(client.text("grep", json!({ "path": "src/main", "pattern": "nothing" })), "");
        let lines = client.text("diff", json!({ "path": "src/main", "from": "then", "content": true }));
        assert!(lines.contains("+third"), "{lines}");
        assert!(client.text("diff", json!({ "from": "then" })).contains("bytes"));
        assert!(client.value("log", json!({ "path": "src/main", "limit": 1 })).as_array().unwrap().len() == 1);
        assert!(client.value("log", json!({})).as_array().is_some_and(|commits| commits.len() > 2));
        assert!(client.text("history", json!({})).contains("then"));
        assert!(client.text("deleted", json!({})).contains("bytes"));
        assert!(client.text("digest", json!({ "path": "src/main" })).contains("digest"));
        assert!(client.text("prove", json!({ "path": "src", "holds": "main" })).len() > 64);
        assert_eq!(client.text("run", json!({ "path": "src/main", "network": "upper | head -n 1" })), "FIRST LINE\n");
        // What is not for it.
        assert!(client.refused("run", json!({ "path": "src/main", "network": "exec 'id'" })).contains("no commands"));
        assert!(client.refused("read", json!({ "path": "../../etc/passwd" })).contains("'..'"));
        assert!(client.refused("read", json!({ "path": "nothing" })).contains("there is no nothing"));
        assert!(client.call("restore", json!({ "path": "bytes", "at": "then" })).unwrap_err().contains("no tool"));
        assert!(
            client.call("read", json!({ "path": "x", "colour": "red" })).unwrap_err().contains("takes no 'colour'")
        );
        assert!(client.call("read", json!({})).unwrap_err().contains("needs 'path'"));
        client.end();
    });
}

#[test]
fn an_assistant_brings_back_the_past_where_it_may() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.mount();
    let client = Client::of(&place, &["--allow-changes", "m"]);
    fs::write(place.path("m/file"), "then").unwrap();
    client.value("snapshot", json!({ "name": "kept" }));
    fs::write(place.path("m/file"), "now").unwrap();
    fs::write(place.path("m/gone"), "gone").unwrap();
    place.weft(&["sync", "m"]).well();
    fs::remove_file(place.path("m/gone")).unwrap();
    client.value("restore", json!({ "path": "file", "at": "kept", "dry_run": true }));
    assert_eq!(fs::read_to_string(place.path("m/file")).unwrap(), "now");
    client.value("restore", json!({ "path": "file", "at": "kept" }));
    assert_eq!(fs::read_to_string(place.path("m/file")).unwrap(), "then");
    client.value("undelete", json!({ "path": "gone" }));
    assert_eq!(fs::read_to_string(place.path("m/gone")).unwrap(), "gone");
    client.end();
    place.umount();
}
