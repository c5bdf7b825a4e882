//! Results: networks compute what links give, on behalf of requests that can be ended, and it is
//! kept as long as there is room, beyond the mount too. Of links that keep places, parts are
//! computed ahead of programs that read from front to back.

pub(crate) mod computing;
pub(crate) mod memo;
pub(crate) mod places;
pub(crate) mod reading;
pub(crate) mod sources;
pub(crate) mod view;
pub(crate) mod views;

pub use computing::{Lane, looking, set_lane};
pub use memo::Memo;
