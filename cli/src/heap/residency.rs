//! Which pages of the region are resident, as the kernel has it in /proc/PID/pagemap.
//!
//! 1. A page that is present counts when it is the process's alone. One that is not may be the kernel's page of zeroes,
//!    which Rss leaves out, or shared with a forked process, which Rss counts: such pages count by the share of them
//!    that makes the sum what smaps says.
//! 2. Without pagemap (some containers) the slots that the pool calls resident share what smaps says.
// SPDX-License-Identifier: MIT

use super::remote::{Pagemap, Remote};
use super::{area, patience};
use anyhow::Result;
use hakmem_base::proc;

/// SuperSlabs read by one call.
const CHUNK: usize = 64;

/// The pages of one SuperSlab, whose slots are numbered from 0.
#[derive(Debug, Clone)]
struct Pages {
    /// Bit i: page i is present.
    present: Vec<u64>,
    alone: [u16; 32],
    shared: [u16; 32],
}

/// What is asked for.
pub struct Wanted<'a> {
    /// Where SuperSlab 0 begins.
    pub base: u64,
    pub superslab_bytes: u64,
    pub superslab_slots: usize,
    /// Bit i: slot i of the SuperSlab may be resident, as the pool has it; 0: none, not even beside others.
    pub slots: &'a [u32],
    /// Rss of the mappings that hold the SuperSlabs.
    pub rss: u64,
}

#[derive(Debug)]
pub struct Residency {
    superslabs: Vec<Option<Box<Pages>>>,
    /// Without pagemap: the resident bytes of each slot that the pool calls resident.
    guess: Option<(Vec<u32>, f64)>,
    /// How far pages count that are not the process's alone: 0 to 1.
    weight: f64,
    page_bytes: u64,
    slot_bytes: u64,
    slots: usize,
}

impl Residency {
    pub fn read(remote: &Remote, wanted: &Wanted) -> Result<Residency> {
        let mut all = Residency {
            superslabs: vec![None; wanted.slots.len()],
            guess: None,
            weight: 0.0,
            page_bytes: proc::page_bytes(),
            slot_bytes: wanted.superslab_bytes / wanted.superslab_slots as u64,
            slots: wanted.superslab_slots,
        };
        let told = match remote.pagemap() {
            Some(pagemap) => all.read_pages(remote, &pagemap, wanted)?,
            None => false,
        };
        if !told {
            all.guess_from(wanted);
        }
        Ok(all)
    }

    /// False: the kernel does not tell.
    fn read_pages(&mut self, remote: &Remote, pagemap: &Pagemap, wanted: &Wanted) -> Result<bool> {
        let pages = (wanted.superslab_bytes / self.page_bytes) as usize;
        let mut bytes = vec![0; CHUNK * pages * 8];
        let mut next = 0;
        while let Some(first) = (next..wanted.slots.len()).find(|&i| wanted.slots[i] != 0) {
            let run = wanted.slots[first..].iter().take(CHUNK).take_while(|&&slots| slots != 0).count();
            let page = (wanted.base + first as u64 * wanted.superslab_bytes) / self.page_bytes;
            if !pagemap.read(page, &mut bytes[..run * pages * 8]) {
                return Ok(false);
            }
            patience::check(remote.pid)?;
            for (i, entries) in bytes[..run * pages * 8].chunks_exact(pages * 8).enumerate() {
                self.superslabs[first + i] = self.pages(entries).map(Box::new);
            }
            next = first + run;
        }
        let sum = |of: fn(&Pages) -> &[u16; 32]| {
            let pages = self.superslabs.iter().flatten().flat_map(|pages| of(pages).iter().map(|&n| u64::from(n)));
            (pages.sum::<u64>() * self.page_bytes) as f64
        };
        let (alone, shared) = (sum(|pages| &pages.alone), sum(|pages| &pages.shared));
        self.weight = if shared > 0.0 { ((wanted.rss as f64 - alone) / shared).clamp(0.0, 1.0) } else { 0.0 };
        Ok(true)
    }

    /// None: nothing is present.
    fn pages(&self, entries: &[u8]) -> Option<Pages> {
        let count = entries.len() / 8;
        let mut pages = Pages { present: vec![0; count.div_ceil(64)], alone: [0; 32], shared: [0; 32] };
        let mut any = false;
        for (i, entry) in entries.chunks_exact(8).enumerate() {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
            if entry & area::PRESENT != 0 {
                any = true;
                pages.present[i / 64] |= 1 << (i % 64);
                let slot = (i * self.slots / count).min(31);
                *(if entry & area::ALONE != 0 { &mut pages.alone[slot] } else { &mut pages.shared[slot] }) += 1;
            }
        }
        any.then_some(pages)
    }

    fn guess_from(&mut self, wanted: &Wanted) {
        let slots: u64 = wanted.slots.iter().map(|slots| u64::from(slots.count_ones())).sum();
        let each = wanted.rss as f64 / slots.max(1) as f64;
        self.guess = Some((wanted.slots.to_vec(), each.min(self.slot_bytes as f64)));
    }

    /// Resident bytes of a slot, by its number in the region.
    pub fn slot(&self, number: usize) -> u64 {
        let (superslab, slot) = (number / self.slots, number % self.slots);
        if let Some((slots, each)) = &self.guess {
            return if slots.get(superslab).is_some_and(|slots| slots >> slot & 1 != 0) { *each as u64 } else { 0 };
        }
        let Some(Some(pages)) = self.superslabs.get(superslab) else {
            return 0;
        };
        let page = self.page_bytes as f64;
        (f64::from(pages.alone[slot]) * page + f64::from(pages.shared[slot]) * page * self.weight) as u64
    }

    pub fn page_bytes(&self) -> usize {
        self.page_bytes as usize
    }

    /// Is the page at this offset in the region resident? Yes if the kernel does not tell.
    pub fn page_is_present(&self, offset: u64) -> bool {
        if self.guess.is_some() {
            return true;
        }
        let superslab_bytes = self.slot_bytes * self.slots as u64;
        let page = (offset % superslab_bytes / self.page_bytes) as usize;
        match self.superslabs.get((offset / superslab_bytes) as usize) {
            Some(Some(pages)) => pages.present[page / 64] >> (page % 64) & 1 != 0,
            _ => false,
        }
    }

    /// The bytes of a slot, zero where no page is present: nothing is made resident by looking.
    pub fn read_slot(&self, remote: &Remote, base: u64, number: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.slot_bytes as usize];
        let offset = number as u64 * self.slot_bytes;
        let pages = (self.slot_bytes / self.page_bytes).max(1) as usize;
        let mut next = 0;
        let present = |page: usize| self.page_is_present(offset + page as u64 * self.page_bytes);
        while let Some(first) = (next..pages).find(|&page| present(page)) {
            next = (first..pages).find(|&page| !present(page)).unwrap_or(pages);
            let (from, to) = (first * self.page_bytes(), (next * self.page_bytes()).min(bytes.len()));
            // What cannot be read any more stays zero.
            let _ = remote.read(base + offset + from as u64, &mut bytes[from..to]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hakmem_base::proc::Pid;

    const SUPERSLAB: usize = 2 << 20;
    const PAGE: usize = 4096;

    /// Two SuperSlabs of this process: of the first, pages 0 to 2 written, 16 to 19 only read.
    fn memory() -> *mut u8 {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: memory of its own, which stays mapped.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 3 * SUPERSLAB, access, flags, -1, 0).cast::<u8>();
            libc::madvise(at.cast(), 3 * SUPERSLAB, libc::MADV_NOHUGEPAGE);
            let at = at.add(at.align_offset(SUPERSLAB));
            (0..3).for_each(|page| at.add(page * PAGE).write_volatile(7));
            (16..20).for_each(|page| assert_eq!(at.add(page * PAGE).read_volatile(), 0));
            at
        }
    }

    #[test]
    fn pages_of_zeroes_do_not_count() {
        if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize != PAGE {
            return eprintln!("skipped: pages are not of 4 KiB");
        }
        let (at, me) = (memory(), Remote::open(std::process::id() as Pid).unwrap());
        let wanted =
            |slots, rss| Wanted { base: at as u64, superslab_bytes: SUPERSLAB as u64, superslab_slots: 32, slots, rss };
        let of = |rss| Residency::read(&me, &wanted(&[3, 0], rss)).unwrap();
        let read = of(3 * PAGE as u64);
        assert_eq!((read.slot(0), read.slot(1), read.slot(40)), (3 * PAGE as u64, 0, 0), "smaps leaves them out");
        assert!(read.page_is_present(0) && !read.page_is_present(3 * PAGE as u64));
        assert_eq!(of(7 * PAGE as u64).slot(1), 4 * PAGE as u64, "smaps counts them: they are shared pages");
        let bytes = read.read_slot(&me, at as u64, 0);
        assert_eq!((bytes.len(), bytes[2 * PAGE], bytes[3 * PAGE]), (64 << 10, 7, 0));
    }

    #[test]
    fn without_pagemap_resident_slots_share_the_sum() {
        let wanted = Wanted {
            base: 1 << 40,
            superslab_bytes: SUPERSLAB as u64,
            superslab_slots: 32,
            slots: &[0b101, 0, 1],
            rss: 90 << 10,
        };
        let nobody = Residency::read(&Remote::of_nobody(), &wanted).unwrap();
        let slots: Vec<u64> = (0..96).map(|slot| nobody.slot(slot)).collect();
        assert_eq!((slots[0], slots[1], slots[2], slots[64]), (30 << 10, 0, 30 << 10, 30 << 10));
        assert_eq!(slots.iter().sum::<u64>(), 90 << 10);
    }
}
