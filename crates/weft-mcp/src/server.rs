//! The server: one connection, by the standard input and output.

use crate::Served;
use crate::tools::{ALL, Answer, Kind, call};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use std::io;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Calls that are worked on at once; others wait.
const CALLS_MAX: usize = 4;

struct Server {
    served: Served,
    places: Arc<Semaphore>,
}

impl Server {
    /// The tools that this server has.
    fn tools(&self) -> impl Iterator<Item = &'static Kind> {
        let may_write = self.served.may_write;
        ALL.iter().filter(move |kind| may_write || !kind.writes)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let about = "The files of one Weft volume, and its past: list, read, search and compare them as they are or as \
                     they were at any moment. Paths are paths in the volume.";
        let may = if self.served.may_write { " The past can be brought back." } else { " Nothing can be changed." };
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("weft", env!("CARGO_PKG_VERSION")))
            .with_instructions(format!("{about}{may}"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools().map(Kind::described).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().find(|kind| kind.name == name).map(Kind::described)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let kind = self.tools().find(|kind| kind.name == request.name);
        let kind =
            kind.ok_or_else(|| ErrorData::invalid_params(format!("there is no tool '{}'", request.name), None))?;
        let given = request.arguments.unwrap_or_default();
        if let Some(name) = kind.unknown(&given) {
            return Err(ErrorData::invalid_params(format!("'{}' takes no '{name}'", kind.name), None));
        }
        if let Some(name) = kind.missing(&given) {
            return Err(ErrorData::invalid_params(format!("'{}' needs '{name}'", kind.name), None));
        }
        Ok(self.answered(kind, &given).await.into())
    }
}

impl Server {
    async fn answered(&self, kind: &Kind, given: &JsonObject) -> CallToolResult {
        let _place = self.places.acquire().await;
        match call(kind, given, &self.served).await {
            Ok(Answer::Value(value)) => CallToolResult::success(vec![ContentBlock::text(value.to_string())]),
            Ok(Answer::Text(text)) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(why) => CallToolResult::error(vec![ContentBlock::text(why)]),
        }
    }
}

/// Serves a volume by the standard input and output, until the first ends.
///
/// # Errors
/// Those of the two, and of what does not speak the protocol.
pub fn serve(served: Served) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let server = Server { served, places: Arc::new(Semaphore::new(CALLS_MAX)) };
        let running = server.serve(rmcp::transport::stdio()).await.map_err(io::Error::other)?;
        running.waiting().await.map(drop).map_err(io::Error::other)
    });
    // A read of the standard input is never given up.
    runtime.shutdown_background();
    served
}
