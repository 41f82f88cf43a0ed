//! Events for whoever collects them, if the feature `tracing` is on; nothing otherwise.

#[cfg(feature = "tracing")]
pub(crate) use tracing::{debug, info, warn};

#[cfg(not(feature = "tracing"))]
mod none {
    macro_rules! nothing {
        ($($event:tt)*) => {
            ()
        };
    }
    pub(crate) use {nothing as debug, nothing as info, nothing as warn};
}
#[cfg(not(feature = "tracing"))]
pub(crate) use none::{debug, info, warn};
