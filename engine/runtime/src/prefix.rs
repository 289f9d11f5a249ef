//! Which work a new prompt can take over from earlier ones.
//!
//! A state of this model cannot be cut back to an arbitrary position (qwen4exp.md 8: the recurrent part has no positions), so
//! besides the live state only stored snapshots help. Two positions are worth one:
//!
//! * close to the end of a prompt, because a chat's next prompt repeats it: a little before the end, since the last tokens
//!   open the answer and are written differently once the answer is history;
//! * where a prompt parts from what the session held, because what two prompts share a third often shares too (one system
//!   prompt, many questions).
//!
//! Both are rounded down to multiples of [`CHUNK_TOKENS`], where going on gives the bits of a cold run (design 3.5). A state
//! that holds decoded rows is not one of a cold run, and the session stores none.

use std::ops::Range;

use crate::backend::{CHUNK_TOKENS, TokenId};
use crate::snapshot::Snapshot;

/// Tokens at a prompt's end that its continuation may not repeat: a chat's opening of the answer.
const OPENING_TOKENS: usize = 16;

/// Snapshots of one session, least recently useful first.
#[derive(Debug, Default)]
pub(crate) struct SnapshotStore {
    limit: usize,
    stored: Vec<Snapshot>,
}

/// Where the work for a prompt begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The live state is a prefix of the prompt.
    Live,
    /// The newest use of [`SnapshotStore::last_used`] is the longest prefix known.
    Snapshot,
    /// Nothing fits.
    Empty,
}

impl SnapshotStore {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, stored: Vec::new() }
    }

    /// The cheapest way to `prompt` for a session that holds `live`. A snapshot that is found becomes the last used.
    pub(crate) fn find(&mut self, live: &[TokenId], prompt: &[TokenId]) -> Start {
        let live_tokens = if prompt.starts_with(live) { live.len() } else { 0 };
        let fits = |s: &(usize, &Snapshot)| prompt.starts_with(&s.1.tokens) && s.1.tokens.len() > live_tokens;
        let longest = self.stored.iter().enumerate().filter(fits).max_by_key(|(_, s)| s.tokens.len());
        match longest.map(|(index, _)| index) {
            Some(index) => {
                let snapshot = self.stored.remove(index);
                self.stored.push(snapshot);
                Start::Snapshot
            }
            None if live_tokens > 0 => Start::Live,
            None => Start::Empty,
        }
    }

    pub(crate) fn last_used(&self) -> Option<&Snapshot> {
        self.stored.last()
    }

    /// Where to stop for a snapshot while running `prompt[todo]`, ascending, each position to be reached exactly.
    pub(crate) fn cuts(&self, live: &[TokenId], prompt: &[TokenId], todo: Range<usize>) -> Vec<usize> {
        if self.limit == 0 {
            return Vec::new();
        }
        let parting = live.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let parting = if parting < live.len() { parting } else { 0 };
        let mut cuts: Vec<usize> = [parting, prompt.len().saturating_sub(OPENING_TOKENS)]
            .into_iter()
            .map(|position| position - position % CHUNK_TOKENS)
            .filter(|cut| *cut > todo.start && *cut <= todo.end)
            .filter(|cut| !self.stored.iter().any(|s| s.tokens == prompt[..*cut]))
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// Keeps one more. The least recently useful past the limit goes before it is taken: memory is planned for the limit.
    pub(crate) fn keep(&mut self, take: impl FnOnce() -> Snapshot) {
        let surplus = (self.stored.len() + 1).saturating_sub(self.limit).min(self.stored.len());
        self.stored.drain(..surplus);
        if self.limit > 0 {
            self.stored.push(take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(tokens: &[TokenId]) -> Snapshot {
        let (layers, ngram_conv, residual, logits) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Snapshot { tokens: tokens.to_vec(), layers, ngram_conv, residual, logits, head: None }
    }
    fn run(n: usize) -> Vec<TokenId> {
        (0..n as TokenId).collect()
    }

    #[test]
    fn the_longest_prefix_wins_be_it_live_or_stored() {
        let mut store = SnapshotStore::new(3);
        store.keep(|| snapshot(&run(128)));
        store.keep(|| snapshot(&run(64)));
        let mut other = run(200);
        other[10] = 999;
        assert_eq!(store.find(&[], &run(200)), Start::Snapshot);
        assert_eq!(store.last_used().unwrap().tokens.len(), 128);
        assert_eq!(store.find(&run(130), &run(200)), Start::Live);
        assert_eq!(store.find(&run(100), &run(200)), Start::Snapshot);
        assert_eq!(store.find(&run(199), &other), Start::Empty);
        assert_eq!(store.find(&other, &run(100)), Start::Snapshot);
        assert_eq!(store.last_used().unwrap().tokens.len(), 64);
    }

    #[test]
    fn a_snapshot_of_the_whole_prompt_is_used() {
        let mut store = SnapshotStore::new(1);
        store.keep(|| snapshot(&run(64)));
        assert_eq!(store.find(&[], &run(64)), Start::Snapshot);
    }

    #[test]
    fn cuts_are_chunk_multiples_at_the_parting_and_clear_of_the_end() {
        let store = SnapshotStore::new(2);
        let mut live = run(300);
        live[200] = 999;
        assert_eq!(store.cuts(&live, &run(400), 0..400), [192, 384]);
        assert_eq!(store.cuts(&[], &run(399), 0..399), [320]);
        assert_eq!(store.cuts(&[], &run(400), 0..400), [384]);
        assert_eq!(store.cuts(&[], &run(399), 330..399), [0usize; 0]);
        assert_eq!(store.cuts(&run(300), &run(399), 300..399), [320]);
        assert_eq!(store.cuts(&[], &run(79), 0..79), [0usize; 0]);
        assert_eq!(store.cuts(&[], &run(80), 0..80), [64]);
        assert_eq!(SnapshotStore::new(0).cuts(&[], &run(400), 0..400), [0usize; 0]);
    }

    #[test]
    fn what_is_stored_is_not_stored_again_and_the_least_useful_goes_first() {
        let mut store = SnapshotStore::new(2);
        store.keep(|| snapshot(&run(64)));
        store.keep(|| snapshot(&run(128)));
        assert_eq!(store.cuts(&[], &run(170), 0..170), [0usize; 0]);
        assert_eq!(store.find(&[], &run(100)), Start::Snapshot);
        store.keep(|| snapshot(&run(192)));
        assert_eq!(store.stored.len(), 2);
        assert_eq!(store.find(&[], &run(150)), Start::Snapshot);
        assert_eq!(store.last_used().unwrap().tokens.len(), 64);
    }
}
