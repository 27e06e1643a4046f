//! Has the test that knows the tables of docs/limits.md write them. The test, and not this crate, so that no chore waits
//! for wasmtime to be compiled with the features that this crate alone would ask of it.

use std::error::Error;

use crate::page::cargo;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let test = ["test", "--quiet", "--workspace", "--test", "limits_doc"];
    let written =
        cargo().args(test).current_dir(env!("CARGO_MANIFEST_DIR")).env("POINTSMAN_WRITE_DOCS", "1").status()?;
    if written.success() { Ok(()) } else { Err("docs/limits.md was not written; cargo's messages are above".into()) }
}
