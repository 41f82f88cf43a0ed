//! The desk and a lock table with a log between them, as stories and as properties.

mod consistency;
mod crowds;
mod observer;
mod properties;
mod scripts;
mod strangers;
mod world;
