//! Arguments of calls, as far as they make sense.

use rmcp::model::JsonObject;
use serde_json::Value;

/// Most bytes of an argument.
const TEXT_MAX: usize = 64 << 10;

/// The arguments of a call.
pub(crate) struct Arguments<'a>(pub(crate) &'a JsonObject);

impl Arguments<'_> {
    /// The text `name`, if it was given. Refused: another kind of value, a zero byte, or too much.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() <= TEXT_MAX && !text.contains('\0') => Ok(Some(text)),
            Some(Value::String(_)) => Err(format!("{name} is too long, or has a zero byte")),
            Some(_) => Err(format!("{name} is no text")),
        }
    }

    /// The number `name`, from 0 on, if it was given.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| format!("{name} is no number from 0 on")),
        }
    }

    /// True if `name` was given and is true.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| format!("{name} is neither true nor false")),
        }
    }
}
