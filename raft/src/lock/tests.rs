//! The lock table as stories and as properties.

mod properties;
mod scripts;
