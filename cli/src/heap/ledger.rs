//! The ledgers of a process's heaps (src/heap/ledger.h), summed up by class.
// SPDX-License-Identifier: MIT

use super::layout::{word, Layout};
use super::model::{Class, Tier};
use super::remote::Remote;
use anyhow::Result;

#[derive(Clone, Copy, Default)]
struct Row {
    block_bytes: u64,
    blocks: u64,
    misses: u64,
    /// Hits of rings. Those of lists are the blocks that were no misses.
    hits: u64,
}

pub struct Ledger<'a> {
    layout: &'a Layout,
    /// The classes that are not large.
    small: usize,
    rows: Vec<Row>,
}

impl Ledger<'_> {
    /// That of the threads that have ended. `block_bytes`: of all classes, of which the first `small` are not large.
    pub fn read<'a>(remote: &Remote, layout: &'a Layout, block_bytes: &[u64], small: usize) -> Result<Ledger<'a>> {
        let rows = block_bytes.iter().map(|&block_bytes| Row { block_bytes, ..Row::default() });
        let mut ledger = Ledger { layout, small, rows: rows.collect() };
        let (places, heap) = (&layout.places, &layout.heap);
        let hits = remote.read_vec(places.ring_hits_ended, heap.ring_classes as usize * 8)?;
        let hits = hits.chunks_exact(8).map(|hits| word(hits, 0)).enumerate();
        ledger.add(&remote.read_vec(places.ledger_ended, block_bytes.len() * heap.row_size as usize)?, hits);
        Ok(ledger)
    }

    /// Adds the rows of a heap, and by number what was popped from its rings.
    pub fn add(&mut self, rows: &[u8], hits: impl Iterator<Item = (usize, u64)>) {
        let facts = &self.layout.heap;
        for (sum, row) in self.rows.iter_mut().zip(rows.chunks_exact(facts.row_size as usize)) {
            sum.blocks = sum.blocks.wrapping_add(facts.row_blocks.of(row));
            sum.misses = sum.misses.wrapping_add(facts.row_misses.of(row));
        }
        for (ring, hits) in hits {
            if let Some(sum) = self.rows.get_mut(self.layout.slab.tiny_classes as usize + ring) {
                sum.hits = sum.hits.wrapping_add(hits);
            }
        }
    }

    /// Corrects what a heap's slow paths have counted for a tiny class. `listed`: blocks that still wait in its lists.
    /// `freed`: blocks that were freed into its current slab and are not counted yet.
    pub fn correct(&mut self, class_id: usize, listed: u64, freed: u64) {
        if let Some(sum) = self.rows.get_mut(class_id) {
            sum.blocks = sum.blocks.wrapping_add(freed).wrapping_sub(listed);
        }
    }

    /// Classes that were used and have no slabs now.
    pub fn past(&self, classes: &[Class]) -> Vec<Class> {
        let tiny = self.layout.slab.tiny_classes as usize;
        let small = self.rows.iter().take(self.small).enumerate();
        let small = small.map(|(i, row)| (if i < tiny { Tier::Tiny } else { Tier::Mid }, row.block_bytes));
        let keys = small.chain([(Tier::Large, 0)]).filter(|key| classes.iter().all(|class| class.key() != *key));
        let mut past: Vec<Class> =
            keys.map(|(tier, block_bytes)| Class { tier, block_bytes, ..Class::default() }).collect();
        past.iter_mut().for_each(|class| self.enter(class));
        past.retain(|class| class.allocations > 0);
        past
    }

    /// Enters the sums into the class. Large blocks of all sizes are one class.
    pub fn enter(&self, class: &mut Class) {
        let (small, large) = self.rows.split_at(self.small.min(self.rows.len()));
        let row = small.iter().find(|row| row.block_bytes == class.block_bytes);
        match (class.tier, row) {
            (Tier::Tiny, Some(row)) => (class.allocations, class.misses) = of_lists(row),
            (Tier::Mid, Some(row)) => (class.allocations, class.misses) = of_rings(std::slice::from_ref(row)),
            (Tier::Large, _) => (class.allocations, class.misses) = of_rings(large),
            _ => {}
        }
    }
}

/// Allocations and misses. Lists are read while they change, and may seem longer than what was taken.
fn of_lists(row: &Row) -> (u64, u64) {
    let allocations = (row.blocks as i64).max(0) as u64;
    (allocations, row.misses.min(allocations))
}

/// Allocations and misses.
fn of_rings(rows: &[Row]) -> (u64, u64) {
    let sum = |of: fn(&Row) -> u64| rows.iter().map(of).fold(0u64, u64::wrapping_add);
    let misses = sum(|row| row.misses);
    (sum(|row| row.hits).wrapping_add(misses), misses)
}
