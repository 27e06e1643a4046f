//! The allocator of a component: lists of free blocks, one for each power of two.
//!
//! A call allocates its arguments and frees them again, mostly in sizes of the call before: taking a block is a pop and
//! giving it back a push, a tenth of what a general allocator asks for. Blocks are never split or joined, so that a
//! guest holds at most twice what it used at its most of each size.
#![allow(unsafe_code, reason = "an allocator hands out raw memory")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

/// Blocks of up to this many bytes stand at multiples of it, whatever alignment was asked for.
const ALIGNED: usize = 16;
const PAGE: usize = 65_536;
/// The largest block is of 2 GiB.
const CLASSES: usize = 32;

/// A free block, which holds the address of the next one.
type Block = *mut u8;

struct State {
    /// By the power of two of their size; those of the second list stand at multiples of their size.
    free: [[Block; CLASSES]; 2],
    /// Memory that was never handed out.
    next: usize,
    end: usize,
}

pub(crate) struct Heap(UnsafeCell<State>);

// SAFETY: a guest has one thread.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(State { free: [[null_mut(); CLASSES]; 2], next: 0, end: 0 }));

unsafe extern "C" {
    /// Where the linker's own data ends.
    static __heap_base: u8;
}

/// The list of a layout and the power of two of its blocks.
fn class(layout: Layout) -> (usize, usize) {
    let bytes = layout.size().max(layout.align()).max(ALIGNED);
    let power = (usize::BITS - (bytes - 1).leading_zeros()) as usize;
    (usize::from(layout.align() > ALIGNED), power)
}

impl State {
    /// A block of memory that was never handed out, null where there is none left.
    fn carve(&mut self, bytes: usize, align: usize) -> Block {
        if self.end == 0 {
            self.next = (&raw const __heap_base).addr();
            self.end = std::arch::wasm32::memory_size::<0>() * PAGE;
        }
        let fit = |next: usize| {
            let start = next.checked_next_multiple_of(align)?;
            Some((start, start.checked_add(bytes)?))
        };
        let Some((mut start, mut after)) = fit(self.next) else { return null_mut() };
        if after > self.end {
            let pages = (after - self.end).div_ceil(PAGE);
            let grown = std::arch::wasm32::memory_grow::<0>(pages);
            if grown == usize::MAX {
                return null_mut();
            }
            // Another may have grown the memory since: what lies between is its own.
            if grown * PAGE != self.end {
                let Some(fitted) = fit(grown * PAGE) else { return null_mut() };
                (start, after) = fitted;
            }
            self.end = (grown + pages) * PAGE;
            if after > self.end {
                return null_mut();
            }
        }
        self.next = after;
        start as Block
    }
}

// SAFETY: a block comes from memory that was never handed out or that was given back, has at least the size and
// alignment of its class, and no two live blocks overlap.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (list, power) = class(layout);
        // SAFETY: one thread, and no reference outlives a call.
        let state = unsafe { &mut *self.0.get() };
        let Some(first) = state.free.get_mut(list).and_then(|blocks| blocks.get_mut(power)) else {
            return null_mut();
        };
        let block = *first;
        if block.is_null() {
            return state.carve(1 << power, if list == 0 { ALIGNED } else { 1 << power });
        }
        // SAFETY: a free block begins with the address of the next.
        *first = unsafe { *block.cast::<Block>() };
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let (list, power) = class(layout);
        // SAFETY: as above.
        let state = unsafe { &mut *self.0.get() };
        if let Some(first) = state.free.get_mut(list).and_then(|blocks| blocks.get_mut(power)) {
            // SAFETY: the block is the caller's to give back, and at least `ALIGNED` bytes long.
            unsafe { *block.cast::<Block>() = *first };
            *first = block;
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size is valid for this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        if class(layout) == class(wanted) {
            return block;
        }
        // SAFETY: the new block is at least as long as the shorter of the two sizes, and another than the old one.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                std::ptr::copy_nonoverlapping(block, moved, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}
