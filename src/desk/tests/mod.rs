//! The desk and a lock table with a log between them, as stories and as properties.

mod scripts;
mod world;
