//! What one round knows, as the device sees it: `kernels/control.cuh`, field by field.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};

/// Rows of a round, and one to spare.
pub(crate) const CONTROL_ROWS: usize = 8;
/// No id: nothing could be chosen, or the token before the first one.
pub(crate) const NONE: u32 = u32::MAX;

/// Where a call's rows stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct At {
    /// Position of row 0.
    pub(crate) position: u32,
    /// Rows of the last round that are part of the state but not yet of S.
    pub(crate) kept: u32,
    /// The log this call writes; the other one holds the last round's rows.
    pub(crate) parity: u32,
    pub(crate) spare: u32,
}

/// Words of an [`At`].
pub(crate) const AT_WORDS: usize = size_of::<At>() / 4;

/// One round. The host writes it whole before a round; the device changes what acceptance decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Control {
    pub(crate) target: At,
    pub(crate) seed: At,
    pub(crate) chain: At,
    pub(crate) rows: u32,
    pub(crate) stop_count: u32,
    pub(crate) generation: u32,
    pub(crate) accepted: u32,
    pub(crate) next: u32,
    pub(crate) bad_row: u32,
    pub(crate) drafted: u32,
    pub(crate) chain_token: u32,
    pub(crate) history: [u32; CONTROL_ROWS],
    pub(crate) tokens: [u32; CONTROL_ROWS],
    pub(crate) followers: [u32; CONTROL_ROWS],
    pub(crate) drafts: [u32; CONTROL_ROWS],
    pub(crate) stops: [u32; CONTROL_ROWS],
}

/// Words of a [`Control`].
pub(crate) const CONTROL_WORDS: usize = size_of::<Control>() / 4;

/// What the host waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Outcome {
    pub(crate) generation: u32,
    pub(crate) accepted: u32,
    pub(crate) next: u32,
    pub(crate) bad_row: u32,
    pub(crate) drafts: [u32; CONTROL_ROWS],
}

// The offsets that the kernels compile to.
const _: () = {
    assert!(size_of::<At>() == 16);
    assert!(offset_of!(Control, target) == 0);
    assert!(offset_of!(Control, seed) == 16);
    assert!(offset_of!(Control, chain) == 32);
    assert!(offset_of!(Control, rows) == 48);
    assert!(offset_of!(Control, stop_count) == 52);
    assert!(offset_of!(Control, generation) == 56);
    assert!(offset_of!(Control, accepted) == 60);
    assert!(offset_of!(Control, next) == 64);
    assert!(offset_of!(Control, bad_row) == 68);
    assert!(offset_of!(Control, drafted) == 72);
    assert!(offset_of!(Control, chain_token) == 76);
    assert!(offset_of!(Control, history) == 80);
    assert!(offset_of!(Control, tokens) == 112);
    assert!(offset_of!(Control, followers) == 144);
    assert!(offset_of!(Control, drafts) == 176);
    assert!(offset_of!(Control, stops) == 208);
    assert!(size_of::<Control>() == 240);
    assert!(offset_of!(Outcome, drafts) == 16);
    assert!(size_of::<Outcome>() == 48);
};

/// First word of a field of [`Control`], for [`DeviceSlice::part`](crate::DeviceSlice::part).
macro_rules! word {
    ($field:ident) => {
        std::mem::offset_of!($crate::control::Control, $field) / 4
    };
}
pub(crate) use word;

impl Control {
    /// Rows `tokens` at `position`, none of them chosen from yet. `before` are all tokens before row 0; the kernels read
    /// the last few.
    pub(crate) fn rows(position: usize, before: &[u32], tokens: &[u32]) -> Self {
        let at = At { position: position as u32, ..At::default() };
        let mut control = Self { target: at, seed: at, chain: at, bad_row: NONE, next: NONE, ..Self::zeroed() };
        control.rows = tokens.len() as u32;
        control.history = [NONE; CONTROL_ROWS];
        for (slot, token) in control.history.iter_mut().rev().zip(before.iter().rev()) {
            *slot = *token;
        }
        for (slot, token) in control.tokens.iter_mut().zip(tokens) {
            *slot = *token;
        }
        control
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_and_tokens_are_one_run_with_nothing_before_the_start() {
        let control = Control::rows(2, &[5, 6], &[7, 8]);
        let run: Vec<u32> = control.history.iter().chain(&control.tokens).copied().collect();
        assert_eq!(run[CONTROL_ROWS - 3..CONTROL_ROWS + 2], [NONE, 5, 6, 7, 8]);
        assert_eq!((control.rows, control.target.position, control.next), (2, 2, NONE));
    }

    #[test]
    fn the_header_declares_the_same_number_of_words() {
        // Declarations of `struct Control` in the header, counted: a field added on one side alone fails here.
        let header = include_str!("../kernels/control.cuh");
        let body = header.split("struct Control {").nth(1).unwrap().split("};").next().unwrap();
        let words: usize = body
            .lines()
            .filter_map(|line| line.trim().split(';').next().filter(|d| !d.is_empty()))
            .map(|d| {
                if d.starts_with("At ") {
                    AT_WORDS
                } else if d.contains("[CONTROL_ROWS]") {
                    CONTROL_ROWS
                } else {
                    1
                }
            })
            .sum();
        assert_eq!(words, CONTROL_WORDS);
    }
}
