//! Tests of the desk as a whole.
