//! Reasons that requests about files are not done, and the answers that tell them.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use weft_vfs::{Error, ErrorKind, MomentError, printable};

/// The reason that a request about files is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The request makes no sense; in words.
    #[error("{0}")]
    Senseless(String),
    /// Nothing is shown as of the moment that it names.
    #[error(transparent)]
    Moment(MomentError),
    /// The volume refuses it.
    #[error(transparent)]
    Vfs(#[from] Error),
}

impl Refusal {
    /// The request makes no sense, for this reason.
    pub(super) fn senseless(why: impl Into<String>) -> Refusal {
        Refusal::Senseless(why.into())
    }

    /// The answer that says so.
    pub(super) fn answer(&self) -> Response {
        let words = self.to_string();
        match self {
            Refusal::Senseless(_) | Refusal::Moment(MomentError::Invalid(_)) => {
                refused(StatusCode::BAD_REQUEST, libc::EINVAL, &words)
            }
            Refusal::Moment(MomentError::NotKept(_)) => refused(StatusCode::NOT_FOUND, libc::ENOENT, &words),
            Refusal::Vfs(error) | Refusal::Moment(MomentError::Vfs(error)) => failed(error),
        }
    }
}

impl From<ErrorKind> for Refusal {
    fn from(kind: ErrorKind) -> Refusal {
        Refusal::Vfs(kind.into())
    }
}

impl From<MomentError> for Refusal {
    fn from(error: MomentError) -> Refusal {
        Refusal::Moment(error)
    }
}

/// The answer to a request that failed.
pub(super) fn refused(code: StatusCode, errno: i32, why: &str) -> Response {
    let told = json!({ "errno": errno, "error": printable(why) });
    (code, [(header::CONTENT_TYPE, "application/json")], Body::from(told.to_string())).into_response()
}

/// The answer to one that failed for this `error`. Its user knows the path, and not the number of
/// the inode; of what concerns the volume itself all is said.
fn failed(error: &Error) -> Response {
    let code = match error.kind() {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::NotPermitted | ErrorKind::AccessDenied | ErrorKind::ReadOnly => StatusCode::FORBIDDEN,
        ErrorKind::Stale => StatusCode::GONE,
        ErrorKind::NoSpace | ErrorKind::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::Io | ErrorKind::Corrupt => {
            if error.kind() == ErrorKind::Corrupt {
                weft_vfs::met_damage();
            }
            tracing::error!("a request at the control socket failed: {error}");
            return refused(StatusCode::INTERNAL_SERVER_ERROR, error.errno(), &error.to_string());
        }
        _ => StatusCode::CONFLICT,
    };
    refused(code, error.errno(), &Error::from(error.kind()).to_string())
}
