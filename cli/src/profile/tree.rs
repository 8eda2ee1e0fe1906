//! Stacks that begin alike, brought together: what a flame graph draws.
//!
//! A node is a function as it was called by those above it; what it weighs includes all that it called.
// SPDX-License-Identifier: MIT

use super::{sites, Metric, Profile, Stack};
use std::collections::HashMap;

pub struct Node {
    pub name: String,
    pub module: Option<usize>,
    /// By metric; or of two profiles: what is drawn, before, after, zeros.
    pub values: [u64; Metric::COUNT],
    pub depth: usize,
    children: Vec<usize>,
}

/// The first node is everything.
pub struct Tree {
    pub nodes: Vec<Node>,
    known: HashMap<(usize, String), usize>,
}

/// Names of a stack with their modules, the outmost caller first; before it the arena, if that has a name. Without what
/// started the thread.
pub fn names(profile: &Profile, stack: &Stack) -> Vec<(String, Option<usize>)> {
    let frames = sites::without_runtime(profile.frames(stack));
    let mut names: Vec<_> = frames.into_iter().map(|(frame, module)| (frame.function, module)).collect();
    names.extend((!stack.arena.is_empty()).then(|| (format!("arena {}", stack.arena), None)));
    names.reverse();
    names
}

impl Tree {
    fn new() -> Tree {
        let all = Node { name: "all".into(), module: None, values: [0; Metric::COUNT], depth: 0, children: Vec::new() };
        Tree { nodes: vec![all], known: HashMap::new() }
    }

    fn add(&mut self, names: Vec<(String, Option<usize>)>, values: [u64; Metric::COUNT]) {
        let mut at = 0;
        self.weigh(at, values);
        for (name, module) in names {
            at = match self.known.get(&(at, name.clone())) {
                Some(&child) => child,
                None => self.child(at, name, module),
            };
            self.weigh(at, values);
        }
    }

    fn weigh(&mut self, at: usize, values: [u64; Metric::COUNT]) {
        for (sum, value) in self.nodes[at].values.iter_mut().zip(values) {
            *sum = sum.saturating_add(value);
        }
    }

    fn child(&mut self, parent: usize, name: String, module: Option<usize>) -> usize {
        let (new, depth) = (self.nodes.len(), self.nodes[parent].depth + 1);
        self.known.insert((parent, name.clone()), new);
        self.nodes.push(Node { name, module, values: [0; Metric::COUNT], depth, children: Vec::new() });
        self.nodes[parent].children.push(new);
        new
    }

    pub fn of(profile: &Profile) -> Tree {
        let mut tree = Tree::new();
        for stack in &profile.stacks {
            tree.add(names(profile, stack), Metric::ALL.map(|metric| stack.value(metric)));
        }
        tree
    }

    /// What each stack weighs is the larger of both, so that also what is gone can be seen.
    pub fn of_difference(before: &Profile, after: &Profile, metric: Metric) -> Tree {
        let mut both: HashMap<Vec<(String, Option<usize>)>, [u64; 2]> = HashMap::new();
        for (side, profile) in [before, after].into_iter().enumerate() {
            for stack in &profile.stacks {
                // Modules have other numbers in the other profile.
                let names = names(profile, stack).into_iter().map(|(name, _)| (name, None)).collect();
                let sum = &mut both.entry(names).or_default()[side];
                *sum = sum.saturating_add(stack.value(metric));
            }
        }
        let mut tree = Tree::new();
        both.into_iter().for_each(|(names, [old, new])| tree.add(names, [old.max(new), old, new, 0, 0, 0]));
        tree
    }

    /// Those that are at least this part of the whole by any measure, each before what it called, the largest first.
    pub fn in_order(&self, least: f64) -> Vec<&Node> {
        let whole = self.nodes[0].values;
        let is_seen = |node: &Node| {
            (0..Metric::COUNT).any(|i| node.values[i] > 0 && node.values[i] as f64 >= whole[i] as f64 * least)
        };
        let (mut order, mut open) = (Vec::new(), vec![0]);
        while let Some(at) = open.pop() {
            let node = &self.nodes[at];
            order.push(node);
            let mut children: Vec<usize> =
                node.children.iter().copied().filter(|&at| is_seen(&self.nodes[at])).collect();
            children.sort_by(|&a, &b| {
                (&self.nodes[a].values, &self.nodes[b].name).cmp(&(&self.nodes[b].values, &self.nodes[a].name))
            });
            open.extend(children);
        }
        order
    }
}
