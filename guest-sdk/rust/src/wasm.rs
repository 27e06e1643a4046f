//! The component: the contract's bindings, and their implementation by a configured policy.
//!
//! Each interface has a world of its own, so that [`export!`](crate::export!) exports any set of them; `wit-component`
//! merges the worlds when it encodes the component.
#![allow(unsafe_code, unreachable_pub, missing_docs, reason = "wit-bindgen expands to unsafe, undocumented code")]

use std::cell::RefCell;

use pointsman_contract as contract;

use crate::guest::{Exported, Guest, manifest};
use crate::layout::{Table, Texts};
use crate::log::Level;
use crate::{PolicyError, Setup};

/// One `generate!` for one interface. The worlds are ours, the interfaces are those of `wit/`.
macro_rules! bindings {
    ($module:ident, $world:literal, $inline:literal $(, with: $with:tt)?) => {
        pub mod $module {
            wit_bindgen::generate!({
                path: "../../wit",
                inline: $inline,
                world: $world,
                pub_export_macro: true,
                $(with: $with,)?
            });
        }
    };
}

bindings!(policy, "pointsman:sdk/policy", "package pointsman:sdk; world policy { export pointsman:policy/policy@0.1.0; }");

/// Where the one guest of a component lives.
pub type Slot<P> = RefCell<Option<Guest<P>>>;
