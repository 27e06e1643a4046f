//! The allocator of a component: lists of free blocks, one for each power of two.
//!
//! A call allocates its arguments and frees them again, mostly in the sizes of the call before: taking a block is a pop
//! and giving it back a push, where a general allocator searches, splits and joins. No block is ever split or joined, so
//! that a guest holds at most twice the bytes that were live at once in each size.
#![allow(unsafe_code, reason = "an allocator hands out raw memory")]

use std::alloc::Layout;
use std::ops::Range;
use std::ptr::null_mut;

/// Every block is at least so long and stands at a multiple of it.
const LEAST: usize = 16;
/// One list for each power of two.
const CLASSES: usize = usize::BITS as usize;

/// A free block; it holds the address of the next one.
type Block = *mut u8;

/// The free blocks, and the memory that was never handed out.
pub(crate) struct Heap {
    /// By the power of two of their length. Those of the second list stand at multiples of their length, for alignments
    /// above [`LEAST`].
    free: [[Block; CLASSES]; 2],
    fresh: Range<usize>,
}

/// The list of a layout, and the power of two of its blocks' length.
const fn class(layout: Layout) -> (usize, usize) {
    let mut bytes = if layout.size() < LEAST { LEAST } else { layout.size() };
    if bytes < layout.align() {
        bytes = layout.align();
    }
    ((layout.align() > LEAST) as usize, (usize::BITS - (bytes - 1).leading_zeros()) as usize)
}

/// Where so many bytes fit at a multiple of `align`.
fn fit(fresh: &Range<usize>, bytes: usize, align: usize) -> Option<Range<usize>> {
    let start = fresh.start.checked_next_multiple_of(align)?;
    let end = start.checked_add(bytes)?;
    (end <= fresh.end).then_some(start..end)
}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self { free: [[null_mut(); CLASSES]; 2], fresh: 0..0 }
    }

    /// A block for `layout`, null where there is no memory. `more(bytes)` answers memory of at least so many bytes that
    /// nobody else uses.
    ///
    /// # Safety
    /// The memory that `more` answers must be readable and writable from then on.
    #[inline(always)]
    pub(crate) unsafe fn alloc(&mut self, layout: Layout, more: impl FnMut(usize) -> Option<Range<usize>>) -> Block {
        let (list, power) = class(layout);
        let Some(first) = self.free.get_mut(list).and_then(|blocks| blocks.get_mut(power)) else {
            return null_mut();
        };
        let block = *first;
        if block.is_null() {
            return self.carve(1 << power, if list == 0 { LEAST } else { 1 << power }, more);
        }
        // SAFETY: a free block begins with the address of the next one.
        *first = unsafe { *block.cast::<Block>() };
        block
    }

    #[cold]
    #[inline(never)]
    fn carve(&mut self, bytes: usize, align: usize, mut more: impl FnMut(usize) -> Option<Range<usize>>) -> Block {
        let place = fit(&self.fresh, bytes, align).or_else(|| {
            let memory = more(bytes.checked_add(align)?)?;
            // Memory that follows lengthens what is left; else the rest, less than a block, is given up.
            self.fresh = if memory.start == self.fresh.end { self.fresh.start..memory.end } else { memory };
            fit(&self.fresh, bytes, align)
        });
        let Some(place) = place else { return null_mut() };
        self.fresh.start = place.end;
        place.start as Block
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// The block must come from [`alloc`](Self::alloc) with that layout, and nobody may use it any more.
    #[inline(always)]
    pub(crate) unsafe fn dealloc(&mut self, block: Block, layout: Layout) {
        let (list, power) = class(layout);
        if let Some(first) = self.free.get_mut(list).and_then(|blocks| blocks.get_mut(power)) {
            // SAFETY: the block is the caller's to give back, and long enough for an address.
            unsafe { *block.cast::<Block>() = *first };
            *first = block;
        }
    }

    /// Whether a block of one layout serves the other as it is.
    pub(crate) fn same(one: Layout, other: Layout) -> bool {
        class(one) == class(other)
    }
}

#[cfg(target_family = "wasm")]
pub(crate) use global::{alloc, dealloc};

#[cfg(target_family = "wasm")]
mod global {
    use std::alloc::{GlobalAlloc, Layout};
    use std::cell::UnsafeCell;
    use std::ops::Range;

    use super::Heap;

    const PAGE: usize = 65_536;

    struct Global(UnsafeCell<(Heap, bool)>);

    // SAFETY: a guest has one thread.
    unsafe impl Sync for Global {}

    #[global_allocator]
    static GLOBAL: Global = Global(UnsafeCell::new((Heap::new(), false)));

    unsafe extern "C" {
        /// Where the linker's own data ends.
        static __heap_base: u8;
    }

    /// What the linker's last page has left, the first time; then further pages.
    fn more(bytes: usize, grown: &mut bool) -> Option<Range<usize>> {
        let end = std::arch::wasm32::memory_size::<0>() * PAGE;
        let start = (&raw const __heap_base).addr();
        if !std::mem::replace(grown, true) && end.saturating_sub(start) >= bytes {
            return Some(start..end);
        }
        let pages = bytes.div_ceil(PAGE);
        let first = std::arch::wasm32::memory_grow::<0>(pages);
        (first != usize::MAX).then(|| first * PAGE..(first + pages) * PAGE)
    }

    /// As [`std::alloc::alloc`], which would be a call of two functions more.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn alloc(layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { GlobalAlloc::alloc(&GLOBAL, layout) }
    }

    /// As [`std::alloc::dealloc`], without the call.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn dealloc(block: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { GlobalAlloc::dealloc(&GLOBAL, block, layout) }
    }

    // SAFETY: a block comes from memory that nobody else has, is as long and as aligned as its class says, and is in
    // one hand at a time.
    unsafe impl GlobalAlloc for Global {
        #[inline(always)]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: one thread, and no reference outlives a call.
            let (heap, grown) = unsafe { &mut *self.0.get() };
            // SAFETY: memory stays once it has grown.
            unsafe { heap.alloc(layout, |bytes| more(bytes, grown)) }
        }

        #[inline(always)]
        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: as above, and the caller gives back what it was given.
            unsafe { (*self.0.get()).0.dealloc(block, layout) }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
            // SAFETY: the caller guarantees that the size is valid for this alignment.
            let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
            if Heap::same(layout, wanted) {
                return block;
            }
            // SAFETY: the new block is another than the old one, and as long as the shorter of the two sizes.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory in two regions with a gap between, the second of which comes in pages that follow each other.
    struct Memory {
        _buffer: Vec<u64>,
        regions: Vec<Range<usize>>,
        asked: usize,
    }

    impl Memory {
        fn new(pages: usize) -> Self {
            let mut buffer = vec![0_u64; 8_192 * (pages + 2)];
            let base = buffer.as_mut_ptr().addr();
            let page = |number: usize| base + 65_536 * number..base + 65_536 * (number + 1);
            let mut regions: Vec<_> = (0..pages).rev().map(|number| page(number + 2)).collect();
            regions.push(base + 5_001..base + 9_000);
            Self { _buffer: buffer, regions, asked: 0 }
        }

        fn more(&mut self, bytes: usize) -> Option<Range<usize>> {
            self.asked += 1;
            let mut region = self.regions.pop()?;
            while region.len() < bytes {
                region.end = self.regions.pop()?.end;
            }
            Some(region)
        }
    }

    #[test]
    fn live_blocks_are_aligned_and_never_overlap_whatever_comes_and_goes() {
        let mut rng = fastrand::Rng::with_seed(11);
        let mut memory = Memory::new(200);
        let mut heap = Heap::new();
        let mut live: Vec<(usize, Layout, u8)> = Vec::new();
        for turn in 0..20_000_u32 {
            if live.len() > 100 || (!live.is_empty() && rng.bool()) {
                let (at, layout, mark) = live.swap_remove(rng.usize(..live.len()));
                let block = at as Block;
                for byte in 0..layout.size() {
                    // SAFETY: the block is live and so long.
                    assert_eq!(unsafe { *block.add(byte) }, mark, "another block wrote into this one");
                }
                // SAFETY: it came from this heap with this layout.
                unsafe { heap.dealloc(block, layout) };
            } else {
                let align = 1 << rng.u32(0..8);
                let layout = Layout::from_size_align(rng.usize(1..3_000), align).unwrap();
                // SAFETY: the memory lives as long as the heap.
                let block = unsafe { heap.alloc(layout, |bytes| memory.more(bytes)) };
                assert!(!block.is_null());
                assert_eq!(block.addr() % align, 0);
                let mark = turn as u8;
                // SAFETY: the block is this test's, and so long.
                unsafe { block.write_bytes(mark, layout.size()) };
                live.push((block.addr(), layout, mark));
            }
        }
        assert!(memory.asked < 120, "blocks that came back are used again, not {} pages", memory.asked);
    }

    #[test]
    fn a_block_that_came_back_is_the_next_one_of_its_size_and_no_memory_is_null() {
        let mut memory = Memory::new(1);
        let mut heap = Heap::new();
        let layout = Layout::from_size_align(900, 8).unwrap();
        let mut take = |heap: &mut Heap, layout| unsafe { heap.alloc(layout, |bytes| memory.more(bytes)) };
        let first = take(&mut heap, layout);
        let second = take(&mut heap, layout);
        assert_ne!(first, second);
        // SAFETY: it came from this heap with this layout.
        unsafe { heap.dealloc(first, layout) };
        assert_eq!(take(&mut heap, Layout::from_size_align(1_000, 16).unwrap()), first);
        assert!(take(&mut heap, Layout::from_size_align(1 << 20, 8).unwrap()).is_null());
        assert!(!take(&mut heap, Layout::from_size_align(16, 8).unwrap()).is_null());
    }

    #[test]
    fn a_size_of_the_same_power_of_two_stays_where_it_is() {
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        assert!(Heap::same(layout(513, 8), layout(1_024, 8)));
        assert!(!Heap::same(layout(512, 8), layout(513, 8)));
        assert!(!Heap::same(layout(64, 16), layout(64, 32)), "the alignment has a list of its own");
    }
}
