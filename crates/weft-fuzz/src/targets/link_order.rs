//! Values that a program may set to have a transformation link made: each is refused, or is a
//! definition that survives encoding as a row and decoding.
use weft_links::{LinkDefinition, LinkOrder};

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let Some(order) = LinkOrder::decode(bytes) else { return };
    assert_eq!(LinkDefinition::decode(&order.definition.encode()).as_ref(), Some(&order.definition));
    let _ = order.definition.check();
}
