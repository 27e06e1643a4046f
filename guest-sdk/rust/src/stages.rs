//! The stages of a component by the canonical ABI of `wit/policy.wit`, written by hand: every decision passes here.
//!
//! The bindings that `wit_bindgen::generate!` expands copy each answer into a block of its own, which the host has freed
//! by one more call of the guest. Here an answer stays in the guest's own buffers until the next one takes its place, so
//! that a decision enters the guest twice, not three times: for the room of the arguments and for the answer. Of the
//! bindings only the description of the interfaces is used; [`exports`] takes the place of their functions.
#![allow(unsafe_code, reason = "the canonical ABI passes addresses")]

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::ptr::{with_exposed_provenance_mut, without_provenance_mut};

use crate::layout::{Table, Texts};
use crate::wasm::Component;

/// What a stage is sent, owned by the guest for the length of the call.
pub struct Sent {
    rows: usize,
    numbers: Numbers,
    workers: Vec<u32>,
    texts: Vec<SentText>,
}

/// A list that may be missing: whether it is there, its block and its length.
pub type Given<T> = (i32, *mut T, usize);

/// A text as the host wrote it.
#[repr(C)]
#[derive(Debug)]
pub struct SentText {
    some: u8,
    /// The address of its block, as a number: a pointer would keep what reads texts from being `Send`.
    data: usize,
    length: usize,
}

/// The block of the facts and columns, which every call has: given back without a call.
struct Numbers(*mut f64, usize);

impl Numbers {
    #[inline(always)]
    fn values(&self) -> &[f64] {
        // SAFETY: the host has written so many numbers there.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

impl Drop for Numbers {
    #[inline(always)]
    fn drop(&mut self) {
        if self.1 != 0 {
            // SAFETY: the block is of that length, and this is its end.
            unsafe { crate::heap::dealloc(self.0.cast(), Layout::for_value(self.values())) };
        }
    }
}

impl Sent {
    /// # Safety
    /// The lists must be what the host has just passed: each in a block of its length that `cabi_realloc` gave.
    #[inline(always)]
    pub unsafe fn new(rows: usize, numbers: (*mut f64, usize), workers: Given<u32>, texts: Given<SentText>) -> Self {
        // SAFETY: the caller's; the block of an empty list is none.
        #[inline(always)]
        unsafe fn list<T>((some, data, length): Given<T>) -> Vec<T> {
            if some == 0 { Vec::new() } else { unsafe { Vec::from_raw_parts(data, length, length) } }
        }
        // SAFETY: the caller's.
        unsafe { Self { rows, numbers: Numbers(numbers.0, numbers.1), workers: list(workers), texts: list(texts) } }
    }

    #[inline(always)]
    fn table(&self) -> Table<'_> {
        let Self { rows, numbers, workers, texts } = self;
        Table { rows: *rows, numbers: numbers.values(), workers, texts: Texts::Sent(texts) }
    }
}

impl SentText {
    pub(crate) fn get(&self) -> Option<&str> {
        // SAFETY: the host has written so many bytes there, UTF-8 all of them, as the ABI has it.
        (self.some != 0)
            .then(|| unsafe { str::from_utf8_unchecked(std::slice::from_raw_parts(self.block(), self.length)) })
    }

    fn block(&self) -> *mut u8 {
        with_exposed_provenance_mut(self.data)
    }
}

impl Drop for SentText {
    fn drop(&mut self) {
        if self.some != 0 {
            // SAFETY: a text lies in a block of its length, like a list.
            drop(unsafe { Vec::from_raw_parts(self.block(), self.length, self.length) });
        }
    }
}

/// What a stage answered last, in the guest's memory for the host to read.
pub(crate) struct Answer {
    words: Words,
    kept: RefCell<Vec<bool>>,
    costs: RefCell<Vec<f64>>,
    error: RefCell<String>,
}

/// An answer as the ABI lays it out, in words of four bytes: 0, then the value; or 1, then the place of a sentence.
#[repr(align(8))]
struct Words(Cell<[u32; 8]>);

/// A stage's answer, for the host.
pub type Answered = *const u8;

impl Answer {
    pub(crate) const fn new() -> Self {
        Self {
            words: Words(Cell::new([0; 8])),
            kept: RefCell::new(Vec::new()),
            costs: RefCell::new(Vec::new()),
            error: RefCell::new(String::new()),
        }
    }

    #[inline(always)]
    fn say(&self, words: [u32; 8]) -> Answered {
        self.words.0.set(words);
        self.words.0.as_ptr().cast_const().cast()
    }

    fn list<T>(&self, list: &[T]) -> Answered {
        self.say([0, list.as_ptr().expose_provenance() as u32, list.len() as u32, 0, 0, 0, 0, 0])
    }

    /// A sentence, in a result whose values begin at the word `at`.
    #[cold]
    fn refuse(&self, at: usize, sentence: String) -> Answered {
        let mut error = self.error.borrow_mut();
        *error = sentence;
        let mut words = [1, 0, 0, 0, 0, 0, 0, 0];
        words[at..at + 2].copy_from_slice(&[error.as_ptr().expose_provenance() as u32, error.len() as u32]);
        self.say(words)
    }
}

pub fn keep<C: Component>(sent: Sent) -> Answered {
    C::with_slot(|slot| {
        let mut kept = slot.answer.kept.borrow_mut();
        match slot.with(|guest| guest.keep(sent.table(), &mut kept)) {
            Ok(()) => slot.answer.list(&kept),
            Err(sentence) => slot.answer.refuse(1, sentence),
        }
    })
}

pub fn score<C: Component>(sent: Sent) -> Answered {
    C::with_slot(|slot| {
        let mut costs = slot.answer.costs.borrow_mut();
        match slot.with(|guest| guest.score(sent.table(), &mut costs)) {
            Ok(()) => slot.answer.list(&costs),
            Err(sentence) => slot.answer.refuse(1, sentence),
        }
    })
}

pub fn pick<C: Component>(sent: Sent) -> Answered {
    C::with_slot(|slot| match slot.with(|guest| guest.pick(sent.table())) {
        Ok(row) => slot.answer.say([0, row, 0, 0, 0, 0, 0, 0]),
        Err(sentence) => slot.answer.refuse(1, sentence),
    })
}

pub fn select<C: Component>(sent: Sent) -> Answered {
    C::with_slot(|slot| match slot.with(|guest| guest.select(sent.table())) {
        Ok(Some(selection)) => {
            let cost = selection.cost.to_bits();
            slot.answer.say([0, 0, 1, 0, selection.row, 0, cost as u32, (cost >> 32) as u32])
        }
        Ok(None) => slot.answer.say([0; 8]),
        Err(sentence) => slot.answer.refuse(2, sentence),
    })
}

/// Room for what the host passes.
///
/// # Safety
/// For the host alone, which asks as the canonical ABI says.
#[unsafe(export_name = "cabi_realloc")]
unsafe extern "C" fn cabi_realloc(old: *mut u8, old_length: usize, align: usize, length: usize) -> *mut u8 {
    if length == 0 {
        return without_provenance_mut(align);
    }
    // SAFETY: the ABI's alignments are powers of two, no block is longer than the memory, and a block that is to change
    // comes from here.
    let room = unsafe {
        if old_length == 0 {
            crate::heap::alloc(Layout::from_size_align_unchecked(length, align))
        } else {
            std::alloc::realloc(old, Layout::from_size_align_unchecked(old_length, align), length)
        }
    };
    assert!(!room.is_null(), "no memory");
    room
}

/// Exports one stage of a component.
#[doc(hidden)]
#[macro_export]
macro_rules! __stage {
    ($component:ident $stage:ident $name:literal) => {
        const _: () = {
            use $crate::stages::{Answered, Sent, SentText};

            #[unsafe(export_name = $name)]
            unsafe extern "C" fn exported(
                rows: usize,
                numbers: *mut f64,
                numbers_length: usize,
                has_workers: i32,
                workers: *mut u32,
                workers_length: usize,
                has_texts: i32,
                texts: *mut SentText,
                texts_length: usize,
            ) -> Answered {
                let workers = (has_workers, workers, workers_length);
                let texts = (has_texts, texts, texts_length);
                // SAFETY: the host calls it, with lists that it has just passed.
                $crate::stages::$stage::<$component>(unsafe {
                    Sent::new(rows, (numbers, numbers_length), workers, texts)
                })
            }
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __stage_keep {
    ($component:ident $($types:tt)*) => { $crate::__stage!($component keep "pointsman:policy/worker-filter@0.1.0#keep"); };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __stage_score {
    ($component:ident $($types:tt)*) => { $crate::__stage!($component score "pointsman:policy/worker-scorer@0.1.0#score"); };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __stage_pick {
    ($component:ident $($types:tt)*) => { $crate::__stage!($component pick "pointsman:policy/worker-picker@0.1.0#pick"); };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __stage_select {
    ($component:ident $($types:tt)*) => { $crate::__stage!($component select "pointsman:policy/worker-selector@0.1.0#select"); };
}

/// Where the bindings' `export!` of each stage finds the macro that defines its functions: ours in place of its own.
pub mod exports {
    pub mod pointsman {
        pub mod policy {
            pub mod worker_filter {
                pub use crate::__stage_keep as __export_pointsman_policy_worker_filter_0_1_0_cabi;
            }
            pub mod worker_scorer {
                pub use crate::__stage_score as __export_pointsman_policy_worker_scorer_0_1_0_cabi;
            }
            pub mod worker_picker {
                pub use crate::__stage_pick as __export_pointsman_policy_worker_picker_0_1_0_cabi;
            }
            pub mod worker_selector {
                pub use crate::__stage_select as __export_pointsman_policy_worker_selector_0_1_0_cabi;
            }
        }
    }
}
